"""A process that ends in the middle of a study."""


class Killed(BaseException):
    """Nothing in the code catches it."""
