"""Prints the whole book as one PDF, _build/html/lamina.pdf.

`make pdf` runs this. Chromium prints the built pages one after the other, as
one document, so that a link from chapter to chapter is a link to a page of
paper. The contents, which must know those pages, are printed after it and
put in front.
"""

import argparse
import datetime
import io
import os
import shutil
import sys
import threading
from html import escape
from pathlib import Path

import yaml

import book

ROOT = book.ROOT
PDF = 'lamina.pdf'
# Where the built pages say that the PDF can be had, if there is one.
MARK = '<!-- pdf -->'

FOOTER = '''<div style="width: 100%; font: 8pt Georgia, serif; color: #555;
text-align: center"><span class="pageNumber"></span></div>'''

# What is printed besides the pages: rules for paper that a screen has not.
STYLE = '''
@page { size: A4; margin: 18mm 17mm 20mm; }
body { padding: 0; background: none; }
.bd-article { break-before: page; }
.bd-article:first-child { break-before: auto; }
.bd-article pre, .bd-article code { white-space: pre-wrap;
  overflow-wrap: anywhere; }
.bd-article table { display: table; width: auto; max-width: 100%; }
.bd-article td, .bd-article th { overflow-wrap: break-word; }
.bd-main .bd-content .bd-article-container .bd-article.cover {
  padding-top: 80mm; }
.cover h1 { font-size: 44pt; }
.list p { margin: 0.15em 0; }
.list .part { margin-top: 1.2em; font-weight: 600; break-after: avoid; }
.list .at0 { margin-top: 0.5em; }
.list .at1 { margin-left: 1.5em; font-size: 0.9em; }
.list a { display: flex; justify-content: space-between; gap: 2em;
  text-decoration: none; }
.bd-article img, .bd-article svg { max-width: 100%; height: auto; }
.bd-article summary { list-style: none; }
.cell_output, .pst-scrollable-table-container { overflow: visible; }
'''

# Runs in a page; returns what its looks are written in.
STYLES = '''() => [...document.querySelectorAll(
  'head > style, head > link[rel=stylesheet]')].map(e => e.outerHTML).join('')
'''

# Runs in the page: puts all pages into it, as articles one after the other.
# An id, and all that refers to it, gets its page's name in front.
GATHER = '''async ([site, names]) => {
  const known = new Set(names);
  const base = new URL(site);
  const anchor = (name, id) =>
    name.replaceAll('/', '-') + (id ? '--' + id : '');
  for (const name of names) {
    const address = new URL(name + '.html', base);
    const text = await (await fetch(address)).text();
    const parsed = new DOMParser().parseFromString(text, 'text/html');
    const article = parsed.querySelector('.bd-article');
    for (const part of article.querySelectorAll(
        'script, noscript, button, .headerlink, .live-top'))
      part.remove();
    for (const part of article.querySelectorAll('*')) {
      if (part.id) part.id = anchor(name, part.id);
      for (const key of ['for', 'aria-labelledby', 'aria-describedby',
                         'headers'])
        if (part.hasAttribute(key))
          part.setAttribute(key, part.getAttribute(key).split(' ')
            .map(id => anchor(name, id)).join(' '));
      for (const {name: key, value} of [...part.attributes])
        if (value.includes('url(#'))
          part.setAttribute(key, value.replaceAll(
            /url\\(#([^)]+)\\)/g, (_, id) => `url(#${anchor(name, id)})`));
    }
    for (const link of article.querySelectorAll('[href]')) {
      const to = new URL(link.getAttribute('href'), address);
      if (to.origin !== base.origin) continue;
      const target = to.pathname.slice(base.pathname.length)
        .replace(/[.]html$/, '');
      if (known.has(target))
        link.setAttribute('href', '#' + anchor(
          target, decodeURIComponent(to.hash.slice(1))));
      else link.removeAttribute('href');
    }
    for (const image of article.querySelectorAll('[src]')) {
      image.src = new URL(image.getAttribute('src'), address);
      image.loading = 'eager';
    }
    for (const fold of article.querySelectorAll('details')) fold.open = true;
    article.id = anchor(name);
    document.querySelector('.bd-article-container').append(article);
  }
  await document.fonts.ready;
  await Promise.all([...document.images].map(
    image => image.decode().catch(() => null)));
  // Chromium writes down where a place is if some link leads to it.
  const nav = document.body.appendChild(document.createElement('nav'));
  nav.hidden = true;
  return [...document.querySelectorAll('h1, h2, h3')].map((heading, n) => {
    heading.id = `heading-${n}`;
    nav.appendChild(document.createElement('a')).href = `#heading-${n}`;
    return [+heading.tagName[1] - 1,
            heading.textContent.trim().replace(/\\s+/g, ' ')];
  });
}'''


def entries(path=ROOT / '_toc.yml'):
    """(caption, page) for each page that _toc.yml lists, in reading order."""
    def below(listed, caption):
        for entry in listed:
            yield caption, entry['file']
            yield from below(entry.get('sections', []), caption)

    toc = yaml.safe_load(path.read_text(encoding='utf-8'))
    yield '', toc['root']
    for part in toc['parts']:
        yield from below(part['chapters'], part.get('caption', ''))


def chromium():
    """The browser's program."""
    names = ('chromium', 'chromium-browser', 'google-chrome',
             'google-chrome-stable', 'chrome', 'msedge')
    found = [os.environ.get('CHROMIUM'), *map(shutil.which, names)]
    for program in filter(None, found):
        return program
    sys.exit('make: the PDF is printed by Chromium (or Chrome, or Edge),'
             ' and none is on PATH.\nInstall it, or name it: make pdf'
             ' CHROMIUM=/path/to/chromium')


def frame(styles, body=''):
    return (f'<!doctype html><html lang="en" data-theme="light"><head>'
            f'<meta charset="utf-8"><title>Lamina</title>{styles}'
            f'<style>{STYLE}</style></head><body>'
            '<div class="bd-main"><div class="bd-content">'
            f'<div class="bd-article-container">{body}</div></div></div>'
            '</body></html>')


def open_page(page, address, html):
    """Show some HTML as a page of the site, at that address."""
    page.route(address, lambda route: route.fulfill(
        body=html, content_type='text/html'))
    page.goto(address)


def print_page(page, **options):
    return io.BytesIO(page.pdf(prefer_css_page_size=True,
                               print_background=True, **options))


def contents(pdf, captions, titles):
    """The book's headings: (depth, title, page from 0, height on it, the
    part's caption)."""
    from pypdf import PdfReader
    reader, captions = PdfReader(pdf), iter(captions)
    places = {name.lstrip('/'): place for name, place in
              reader.named_destinations.items()}
    found, caption = [], ''
    for number, (depth, title) in enumerate(titles):
        place = places[f'heading-{number}']
        if depth == 0:
            caption = next(captions)
        found.append((depth, title, reader.get_destination_page_number(place),
                      place.top, caption))
    return found


def front(headings):
    """The title page and the contents, as HTML."""
    today = datetime.date.today()
    lines, last = [], ''
    for depth, title, number, _, caption in headings:
        if depth > 1:       # as many again
            continue
        if caption and caption != last:
            lines.append(f'<p class="part">{escape(caption)}</p>')
            last = caption
        lines.append(
            f'<p class="at{depth}"><a href="http://page/{number}">'
            f'<span>{escape(title)}</span><span>{number + 1}</span></a></p>')
    return f'''<article class="bd-article cover"><h1>Lamina</h1>
<p>A deep learning framework that you build yourself, one layer at a time</p>
<p>{today.day} {today:%B %Y}</p>
<p>Code under the MIT licence, text and figures under CC BY 4.0.</p>
</article>
<article class="bd-article list"><h1>Contents</h1>
{''.join(lines)}</article>'''


def merge(front_pdf, body_pdf, headings):
    """One PDF: the contents, then the body, with bookmarks and links."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.annotations import Link
    from pypdf.generic import Fit

    before, body = PdfReader(front_pdf), PdfReader(body_pdf)
    count = len(before.pages)
    writer = PdfWriter(clone_from=body_pdf)
    for number, page in enumerate(before.pages):
        links = [annotation.get_object() for annotation in
                 page.pop('/Annots', [])]
        writer.insert_page(page, number)
        for link in links:
            target = int(link['/A']['/URI'].rsplit('/', 1)[1])
            writer.add_annotation(number, Link(
                rect=link['/Rect'], border=[0, 0, 0],
                target_page_index=count + target, fit=Fit.fit()))
    above = []
    for depth, title, number, top, _ in headings:
        del above[depth:]
        above.append(writer.add_outline_item(
            title, count + number, parent=above[-1] if above else None,
            fit=Fit.xyz(top=top), is_open=False))
    writer.set_page_label(0, count - 1, style='/r')
    writer.set_page_label(count, count + len(body.pages) - 1, style='/D',
                          start=1)
    writer.add_metadata({
        '/Title': 'Lamina', '/Author': 'The Lamina authors',
        '/Subject': 'A deep learning framework that you build yourself'})
    writer.page_mode = '/UseOutlines'
    return writer


def make(built):
    """Write the PDF of the pages in `built`; returns its path."""
    from playwright.sync_api import sync_playwright

    program = chromium()
    captions, pages = zip(*entries())
    missing = [name for name in pages if not (built / f'{name}.html').exists()]
    if missing:
        sys.exit(f'make: {built} has no page {missing[0]}: build the book')
    flags = ['--disable-gpu']
    if hasattr(os, 'geteuid') and os.geteuid() == 0:
        flags.append('--no-sandbox')
    with book.open_server(built, 8300) as server, sync_playwright() as p:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site = f'http://localhost:{server.server_port}/'
        browser = p.chromium.launch(executable_path=program, args=flags)
        page = browser.new_page(color_scheme='light')
        page.set_default_timeout(600_000)
        first = f'{site}{pages[0]}.html'
        page.goto(first)
        # In the same folder, so that the styles find their fonts.
        styles = page.evaluate(STYLES)
        open_page(page, first + '?book', frame(styles))
        titles = page.evaluate(GATHER, [site, pages])
        body = print_page(page, display_header_footer=True,
                          header_template='<span></span>',
                          footer_template=FOOTER)
        headings = contents(body, captions, titles)
        open_page(page, first + '?front',
                  frame(styles, front(headings)))
        cover = print_page(page)
        browser.close()
        server.shutdown()
    writer = merge(cover, body, headings)
    path = built / PDF
    writer.write(path)
    return path


def offer(built):
    """Let the pages link to the PDF that is beside them."""
    size = (built / PDF).stat().st_size / 1e6
    for path in built.rglob('*.html'):
        text = path.read_text(encoding='utf-8')
        if MARK in text:
            up = '../' * (len(path.relative_to(built).parts) - 1)
            path.write_text(text.replace(MARK, (
                f'<a href="{up}{PDF}">The whole book as PDF</a>'
                f' ({size:.0f} MB).')), encoding='utf-8', newline='\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--built', type=Path, default=book.BUILT,
                        help='the built book: %(default)s')
    built = parser.parse_args().built
    chromium()
    print('Printing the book.', flush=True)
    path = make(built)
    offer(built)
    print(f'Wrote {path} ({path.stat().st_size / 1e6:.1f} MB).', flush=True)


if __name__ == '__main__':
    main()
