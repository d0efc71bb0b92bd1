"""The grader: hidden tests in a trusted process, a student's code in a sandbox, data in between."""
