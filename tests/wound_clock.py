"""A clock that a test winds."""


class Clock:
    """Stands still between calls of `wait`."""

    now = 1000.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
