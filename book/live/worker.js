// Python in a page: one chapter's notebook, in a module worker.
//
// The page starts it with   new Worker(url, {type: 'module'})   and sends:
//   {id, op: 'start', chapter}          once, first; chapter is '08_autograd'
//   {id, op: 'run', cell, source, name}    a code cell: its id, its present text,
//                                       and what a traceback is to call it
//   {id, op: 'check' | 'hint' | 'solution', exercise}    such as '08.3'
//   {id, op: 'numpy'}                   fetch NumPy and matplotlib from the
//                                       network, and begin the chapter again
// `id` is the page's own, and comes back. What is sent waits in one queue.
//
// The worker sends:
//   {op: 'progress', text, done, total}    while it loads; bytes
//   {op: 'output', id, output}             a notebook's output: stream,
//                                          execute_result, display_data, error
//   {op: 'verdict', exercise, kind, passed}    of a check, for the page to keep
//   {op: 'done', id, ok, seconds, text}    each message's end; text says what
//                                          went wrong with 'start' or 'numpy'
//   {op: 'dead', id, text}                 Python is broken; a new worker helps
// To stop a cell the page terminates the worker: its names are gone then.

import createPyodideModule from 'pyodide/pyodide.asm.mjs';
import { loadPyodide } from 'pyodide/pyodide.mjs';

const here = new URL('.', import.meta.url).href;
let python, page, chapter, packages, unpacked, viz, vizLoading, manifest, cache;

// ---- files, kept in the browser's cache -----------------------------------

const types = { wasm: 'application/wasm', js: 'text/javascript' };
let loaded = 0, told = 0;

function progress(text = 'Loading Python') {
  const sizes = Object.values(manifest.files).map(([size]) => size);
  postMessage({ op: 'progress', text, done: loaded,
    total: sizes.reduce((a, b) => a + b, 0) });
  told = performance.now();
}

function count(body) {
  return body.pipeThrough(new TransformStream({
    transform(chunk, out) {
      loaded += chunk.byteLength;
      out.enqueue(chunk);
      if (performance.now() - told > 100) progress();
    },
  }));
}

const network = self.fetch.bind(self);
const address = name => `${here}${name}?${manifest.files[name][1]}`;

async function load(name) {
  const answer = await network(address(name));
  if (!answer.ok) {
    throw new Error(`${name} could not be loaded (${answer.status}).`);
  }
  const type = types[name.split('.').pop()] ?? 'application/octet-stream';
  return new Response(count(answer.body),
    { headers: { 'Content-Type': type } });
}

// A file of this folder. Some servers know no type for .wasm, and many ask
// browsers to come back each time: so it is kept here, with its type.
async function file(name) {
  const kept = await cache?.match(address(name));
  if (kept) {
    loaded += manifest.files[name][0];
    return kept;
  }
  const whole = await load(name);
  cache?.put(address(name), whole.clone()).catch(() => {});   // no room
  return whole;
}

// Pyodide fetches by itself, and knows nothing of the cache.
self.fetch = (request, options) => {
  const name = String(request.url ?? request).slice(here.length);
  return String(request.url ?? request).startsWith(here)
    && manifest && name in manifest.files ? file(name)
    : network(request, options);
};

// Python's memory, from the snapshot. To unpack it takes a third of a second:
// the browser keeps it as it is then.
async function loadMemory() {
  const name = 'snapshot.bin', unpacked = `${address(name)}-unpacked`;
  const kept = await cache?.match(unpacked);
  if (kept) {
    loaded += manifest.files[name][0];
    return new Uint8Array(await kept.arrayBuffer());
  }
  const stream = (await load(name)).body.pipeThrough(
    new DecompressionStream('gzip'));
  const memory = new Uint8Array(await new Response(stream).arrayBuffer());
  cache?.put(unpacked, new Response(memory)).catch(() => {});   // no room
  return memory;
}

async function openCache() {
  try {
    const opened = await caches.open('lamina-live');
    const used = Object.keys(manifest.files).map(address);
    used.push(`${address('snapshot.bin')}-unpacked`);
    for (const { url } of await opened.keys()) {
      if (url.startsWith(here) && !used.includes(url)) opened.delete(url);
    }
    return opened;
  } catch {
    return undefined;    // a private window, or no secure connection
  }
}

// ---- Python ---------------------------------------------------------------

const settings = () => ({
  indexURL: here,
  createPyodideModule,
  lockFileContents: manifest.lock,
  packageBaseUrl: manifest.packages,
  env: { HOME: '/page' },
});

// Python as it was when the snapshot was taken, which is larger than the
// memory that it begins with.
async function restored() {
  const memory = loadMemory();
  return loadPyodide({
    ...settings(),
    _loadSnapshot: memory,
    createPyodideModule: async options => {
      const module = await createPyodideModule(options);
      module.growMemory((await memory).length);
      return module;
    },
  });
}

async function startPython() {
  const lamina = file('lamina.zip');
  packages = file('packages.zip');
  try {
    python = await restored();
  } catch (error) {
    // The memory is that of another engine: this one starts from nothing.
    console.info('Python starts without its snapshot:', error);
    python = await loadPyodide(settings());
    await unpackPackages();
  }
  await unpack(lamina);
  python.runPython(`
import os, sys
sys.path.insert(0, '/page')
os.chdir('/page')
`);
  guardStack();
  page = python.pyimport('course.page');
}

async function unpack(answer) {
  python.unpackArchive(await (await answer).arrayBuffer(), 'zip',
    { extractDir: '/page' });
  python.runPython('import importlib; importlib.invalidate_caches()');
}

// What is imported of them is in the snapshot. Their files are for what a
// later cell may ask.
const unpackPackages = () => unpacked ??= unpack(packages);

// Python counts its own stack, which is large; the browser's, which Python
// does not see, is over first, and then all is lost. With 64 kB of its own,
// Python raises a RecursionError in time.
function guardStack() {
  const c = python._module, size = 1 << 16;
  c._PyUnstable_ThreadState_SetStackProtection(
    c._PyThreadState_Get(), c._emscripten_stack_get_base() - size, size);
}

async function loadViz() {
  const text = await (await file('viz.js')).text();
  const url = URL.createObjectURL(new Blob([text], { type: types.js }));
  const { instance } = await import(url);
  viz = await instance();
}

const loadRest = () => Promise.all([unpackPackages(), vizLoading ??= loadViz()]);

const draw = dot => viz.renderString(dot, { format: 'svg' });
const send = message => postMessage(JSON.parse(message));

// ---- what the page asks for -----------------------------------------------

const operations = {
  async start(message) {
    manifest = await (await network(`${here}live.json`,
      { cache: 'no-cache' })).json();
    cache = await openCache();
    chapter = message.chapter;
    progress();
    await startPython();
    progress('Python is ready');
    page.start(chapter, send, draw);
    return true;
  },

  async numpy() {
    try {
      await python.loadPackage(['numpy', 'matplotlib']);
      python.runPython('import numpy');
    } catch {
      throw new Error('NumPy and matplotlib could not be fetched: they come'
        + ' from the network. The python device goes on without them.');
    }
    page.start(chapter, send, draw);
    return true;
  },

  async run({ id, cell, source, name = `cell ${cell}` }) {
    // The first cell, which calls begin(), need not wait for it.
    if (!source.includes('begin(')) await loadRest();
    return page.run(id, source, name, send);
  },
  async check({ id, exercise }) {
    await loadRest();
    return page.check(id, exercise, send);
  },
  hint: ({ id, exercise }) => page.hint(id, exercise, send),
  solution: ({ id, exercise }) => page.solution(id, exercise, send),
};

async function serve(message) {
  const { id, op } = message, begun = performance.now();
  let ok = false, text;
  try {
    if (op !== 'start' && !page) throw new Error('Python has not started.');
    ok = await operations[op](message);
  } catch (error) {
    text = error.message;
    if (error.pyodide_fatal_error || error instanceof RangeError) {
      postMessage({ op: 'dead', id, text: 'Python ran out of its stack,'
        + ' and cannot go on: start it again.' });
      page = undefined;
    }
  }
  postMessage({ op: 'done', id, ok, text,
    seconds: (performance.now() - begun) / 1000 });
}

let queue = Promise.resolve();
self.onmessage = event => {
  queue = queue.then(() => serve(event.data));
};
