"""The long runs behind the table of docs/results/reliability.md: `python -m reliability`."""
