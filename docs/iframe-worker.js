/* Search without a server. Browsers run no workers from file:, so there this class takes the place of Worker: it runs
   the script in a hidden frame, in which importScripts returns a promise, as the search of Material for MkDocs expects. */
if (location.protocol === "file:") {
  const load = (frame, url) => new Promise((loaded, failed) => {
    const script = frame.document.createElement("script")
    Object.assign(script, {src: url, onload: loaded, onerror: failed})
    frame.document.head.append(script)
  })

  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const element = document.createElement("iframe")
      element.hidden = true
      document.body.append(element)
      const frame = element.contentWindow
      frame.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(frame, next)), Promise.resolve())
      frame.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      this.frame = frame
      this.ready = load(frame, url)
    }

    postMessage(data) {
      this.ready.then(() => this.frame.dispatchEvent(new MessageEvent("message", {data})))
    }
  }
}
