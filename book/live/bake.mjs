// Run by node while the book is built, on a folder of Python files:
//   node bake.mjs zip       NODE_MODULES FOLDER FILE    the files with their
//                           bytecode, to unpack at /page
//   node bake.mjs snapshot  NODE_MODULES FOLDER FILE    (gzip) the memory of
//                           a Python that has imported them

import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';

process.on('uncaughtException', error => {
  console.error(error.message);     // not the line of Pyodide, which is long
  process.exit(1);
});

const [what, modules, folder, out] = process.argv.slice(2);
const { loadPyodide } = await import(
  pathToFileURL(path.join(modules, 'pyodide', 'pyodide.mjs')));

// Two runs of the same build must give the same bytes.
const env = { PYTHONHASHSEED: '0' };

const python = await loadPyodide({ env, _makeSnapshot: what === 'snapshot' });
python.FS.mkdir('/page');
python.mountNodeFS('/page', path.resolve(folder));

const zip = `
import importlib._bootstrap_external as loader, importlib.util
import pathlib, zipfile

def add(name, data):
    pages.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data,
                   zipfile.ZIP_DEFLATED)

root = pathlib.Path('/page')
with zipfile.ZipFile('/python.zip', 'w') as pages:
    for file in sorted(p for p in root.rglob('*') if p.is_file()):
        name, data = file.relative_to(root), file.read_bytes()
        if name.suffix != '.py':
            add(str(name), data)
            continue
        code = loader._code_to_hash_pyc(
            compile(data, f'/page/{name}', 'exec', dont_inherit=True),
            importlib.util.source_hash(data), False)
        if name.parts[0] in ('lamina', 'course'):   # read by the course
            add(str(name), data)
            add(importlib.util.cache_from_source(str(name)), code)
        else:
            add(str(name.with_suffix('.pyc')), code)

    if (root / 'lamina').is_dir():
        # The library compiles a function for each operator while it is
        # imported: two thirds of the time that begin() takes in a page.
        import builtins, marshal, sys
        found, plain = {}, builtins.compile

        def compile(*given, **options):
            code = plain(*given, **options)
            if isinstance(given[0], str) and not options:
                found[given] = code
            return code

        builtins.compile = compile
        sys.path.insert(0, '/page')
        sys.dont_write_bytecode = True
        import lamina
        builtins.compile = plain
        add('compiled.bin', marshal.dumps(found))
`;
// Not this course: what is in the memory must not change with every edit.
const imports = `
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, '/page')

import __future__, _colorize, annotationlib, array, ast, base64, bisect
import builtins, codecs, collections.abc, colorsys, contextlib, contextvars
import copy, csv, ctypes, dataclasses, datetime, difflib, dis, enum, fractions
import functools, gc, gzip, hashlib, heapq, html, importlib.metadata
import importlib.util, inspect, io, itertools, json, keyword, linecache, math
import mmap, numbers, operator, os, pathlib, pickle, pkgutil, platform, pprint
import queue, random, re, secrets, shutil, signal, statistics, string, struct
import subprocess, symtable, tempfile, textwrap, threading, time, timeit
import token, tokenize, traceback, tracemalloc, types, typing, unicodedata
import unittest, urllib.parse, urllib.request, uuid, warnings, weakref
import xml.sax.saxutils, zipfile, zlib

import graphviz
import hypothesis
from hypothesis import strategies
import IPython.lib.pretty

# Files that are open now will not be open in a page.
gc.collect()
for thing in gc.get_objects():
    if isinstance(thing, zipfile.ZipFile):
        thing.close()
del sys.path[0], thing
gc.collect()
`;

if (what === 'zip') {
  python.runPython(zip);
  fs.writeFileSync(out, python.FS.readFile('/python.zip'));
} else {
  python.runPython(imports);
  fs.writeFileSync(out, gzipSync(python.makeMemorySnapshot(), { level: 9 }));
}
process.exit(0);
