"""The specifications' scenarios, and which test shows which.

``NNN.txt`` lists the titles of a specification's scenarios, one a line. A test names what it shows:
``@pytest.mark.spec("001", "Session ID generation")`` in Python, a docstring ``SPEC 001 Title, Other title.`` in ERT.
"""
