"""HTTP as all daemons have it: what is asked and answered, and what stands before every request."""
