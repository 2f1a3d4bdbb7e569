"""What all tests share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# Generated inputs are the same in each run, and no machine is too slow.
settings.register_profile('lamina', derandomize=True, deadline=None,
                          database=None)
settings.load_profile('lamina')


@pytest.fixture(scope='session')
def root():
    """The project's folder."""
    return ROOT


def pytest_configure():
    """Where a checkpoint is tested, be sure that it is what is imported."""
    checkpoint = os.environ.get('LAMINA_CHECKPOINT')
    if checkpoint:
        import lamina
        found = Path(lamina.__file__).resolve()
        if Path(checkpoint).resolve() not in found.parents:
            pytest.exit(f'{found} is imported, not the checkpoint in '
                        f'{checkpoint}', returncode=3)


def pytest_collection_modifyitems(items):
    """A checkpoint is tested with few examples: the whole library, which
    is the same code, has been tested with all."""
    if 'LAMINA_CHECKPOINT' in os.environ:
        for item in items:
            test = getattr(item, 'obj', None)
            if hasattr(test, 'hypothesis'):
                test._hypothesis_internal_use_settings = settings(
                    test._hypothesis_internal_use_settings, max_examples=4)
