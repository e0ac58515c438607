"""How the trace of whoever submits a job reaches its tasks. Nothing here imports OpenTelemetry before it is needed."""
