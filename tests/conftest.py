"""What holds for all tests."""

from hypothesis import settings

# No test fails because a machine is slow: examples have no deadline. Speed is judged in benchmarks.
settings.register_profile("dreamrsi", deadline=None)
settings.load_profile("dreamrsi")
