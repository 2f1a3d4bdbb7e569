"""Values that a page shows as what they are."""

__all__ = ["display", "HTML", "Markdown", "SVG"]


def display(*values, **options):
    from course import page

    page.display(*values, **options)


class Shown:
    def __init__(self, data):
        self.data = data


class HTML(Shown):
    def _repr_html_(self):
        return self.data


class Markdown(Shown):
    def _repr_markdown_(self):
        return self.data


class SVG(Shown):
    def _repr_svg_(self):
        return self.data
