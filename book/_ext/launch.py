"""Buttons that open a chapter in Binder or Colab, where that can work.

Both fetch the notebooks from GitHub, so they are there only in a book that
knows its address: LAMINA_REPOSITORY=https://github.com/owner/name. The
branch `launch`, which tools/launch.py fills, holds what they open.
"""

import os
import re

BRANCH = 'launch'
GITHUB = re.compile(r'https://github\.com/[\w.-]+/[\w.-]+')


def configure(app, config):
    address = os.environ.get('LAMINA_REPOSITORY', '')
    if not address:
        return
    if not GITHUB.fullmatch(address):
        raise ValueError(f'LAMINA_REPOSITORY is {address!r}; it must be like'
                         ' https://github.com/owner/name')
    config.html_theme_options.update(
        repository_url=address, repository_branch=BRANCH, path_to_docs='',
        use_repository_button=True, launch_buttons={
            'notebook_interface': 'jupyterlab',
            'binderhub_url': 'https://mybinder.org',
            'colab_url': 'https://colab.research.google.com'})


def setup(app):
    # Before the theme reads its options.
    app.connect('config-inited', configure, priority=400)
    return {'version': '1', 'parallel_read_safe': True,
            'parallel_write_safe': True}
