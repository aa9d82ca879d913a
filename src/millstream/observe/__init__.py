"""What operators and tests see of a running process: `log` events with fields, `failpoint` steps to be killed at."""
