// The report's numbers: the small ones stand in the page as JSON, the large ones packed, and are unpacked when first
// asked for, so that a page with many questions opens at once.

const manifest = JSON.parse(document.getElementById("manifest").textContent);
const TYPES = { int32: Int32Array, float32: Float32Array, bytes: Uint8Array };
const unpacked = new Map();

/** A packed section: a typed array, or what its JSON holds. */
function section(name) {
  if (!unpacked.has(name)) {
    unpacked.set(name, unpack(name));
  }
  return unpacked.get(name);
}

async function unpack(name) {
  const element = document.getElementById(`section-${name}`);
  const packed = atob(element.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) {
    bytes[i] = packed.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const plain = await new Response(stream).arrayBuffer();
  element.remove();
  const kind = element.dataset.kind;
  return kind === "json" ? JSON.parse(new TextDecoder("utf-8").decode(plain)) : new TYPES[kind](plain);
}
