// Starts what a page does with a reader: marks of progress on every page,
// cells that run in a chapter. Nothing of Python or of the editor is
// fetched before the reader presses something.

{
  const top = document.querySelector('.live-top');
  const canRun = location.protocol !== 'file:' && window.Worker;
  const from = new URL('.', document.currentScript.src);

  if (canRun) {
    import(new URL('cells/progress.js', from)).then(p => p.showMarks());
    if (top) import(new URL('cells/page.js', from));
  } else if (top) {
    document.documentElement.classList.add('no-live');
    top.textContent = location.protocol === 'file:'
      ? 'The cells of this page can run in the browser, but not from a file: '
        + 'in the book’s folder, type '
      : 'The cells of this page run in browsers that have module workers.';
    if (location.protocol === 'file:') {
      const command = document.createElement('code');
      command.textContent = 'python -m http.server';
      top.append(command, ', and open ');
      const address = document.createElement('code');
      address.textContent = 'http://localhost:8000';
      top.append(address, '.');
    }
  }
}
