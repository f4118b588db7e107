"""A page of the browser, of which it is noted what it did that it must not do."""

from urllib.parse import urlparse


class Watched:
    """A page in a context of its own, and what it did that it must not do. Requests to other hosts are refused, as in airplane mode."""

    def __init__(self, chromium, **options):
        self.outside, self.problems = [], []
        settings = {"viewport": {"width": 1280, "height": 900}, "service_workers": "block", **options}
        self.context = chromium.new_context(**settings)
        self.context.route("**/*", self.gate)
        self.context.on("request", self.request)
        self.context.on("response", self.response)
        self.page = self.context.new_page()
        self.page.on("console", self.console)
        self.page.on("pageerror", self.fault)

    def gate(self, route):
        route.abort() if foreign(route.request.url) else route.continue_()

    def request(self, request):
        if foreign(request.url):
            self.outside.append(request.url)

    def response(self, response):
        if response.status >= 400:
            self.problems.append(f"HTTP {response.status} {response.url}")

    def console(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(f"console.{message.type}: {message.text}")

    def fault(self, error):
        self.problems.append(f"uncaught: {error}")

    def check(self, wait=150):
        """It asked no other host, logged no error or warning, and found all its files."""
        for page in self.context.pages:
            page.wait_for_timeout(wait)  # for what is still under way
        assert self.outside == [], f"{self.page.url} asked other hosts: {self.outside}"
        assert self.problems == [], f"{self.page.url}: {self.problems}"


def foreign(address):
    """Whether this is another machine's."""
    url = urlparse(address)
    return url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1"
