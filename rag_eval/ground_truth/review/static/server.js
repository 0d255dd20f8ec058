// Talking to the server. A problem it names comes as a Problem; after "conflict" ones the page reads everything again.

export class Problem extends Error {
  constructor(sentence, isConflict) {
    super(sentence);
    this.isConflict = isConflict;
  }
}

export const getState = () => ask("/api/state");
export const getRevision = async () => (await ask("/api/revision")).revision;
export const getQuery = (id) => ask(`/api/query?id=${encodeURIComponent(id)}`);
export const getDocument = (id) => ask(`/api/document?id=${encodeURIComponent(id)}`);
export const post = (what, data = {}) =>
  ask(`/api/${what}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(data) });

async function ask(address, options) {
  let response;
  try {
    response = await fetch(address, options);
  } catch {
    throw new Problem("The review has ended in the terminal: start it again. All saved decisions are kept.", false);
  }
  const isJson = response.headers.get("Content-Type")?.startsWith("application/json");
  const answer = isJson ? await response.json() : { problem: await response.text() };
  if (!response.ok) throw new Problem(answer.problem, response.status === 409);
  return answer;
}
