// Before the first paint, apply the colours that the reader chose. A page opened from a file may have no storage.
try {
  const kept = localStorage.getItem("rag-eval-theme");
  if (kept === "dark" || kept === "light") {
    document.documentElement.dataset.theme = kept;
  }
} catch {
  // use the system's colours
}
