"""The course assignments: instructor notebooks, hidden tests, and the grader."""
