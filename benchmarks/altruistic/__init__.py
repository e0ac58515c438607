"""What the altruistic scheduler brings, beside those that paper 002 measures it against."""
