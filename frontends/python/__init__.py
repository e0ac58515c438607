"""The Python framework: functions as tasks. Its frontend is the client library, `sparrow_py`."""
