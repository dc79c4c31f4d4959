"""What is made of results: a comparison of two runs, and a page with figures."""
