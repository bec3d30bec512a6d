"""A Django project, its checks (which Django's test runner runs), and the tests that start them."""
