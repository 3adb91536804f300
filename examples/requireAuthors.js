/// <reference path="quire.d.ts" />

// Pre-trigger for creating and replacing books: every author that the book names must exist.
//
// Create it with triggerType "Pre" and triggerOperation "All", and name it in each request that it shall look at:
// `pre_trigger_include="requireAuthors"` in Python, `{ preTriggerInclude: ["requireAuthors"] }` in JavaScript.
// A book with an author who is not there is refused with 400 and sub-status 404, and not stored.

function requireAuthors() {
  const collection = getContext().getCollection();
  const book = getContext().getRequest().getBody();
  if (book.type !== "book") return;
  if (!Array.isArray(book.authors) || book.authors.length === 0) throw new Error(400, "a book has authors");

  for (const id of book.authors) {
    const accepted = collection.readDocument(`${collection.getAltLink()}/docs/${id}`, (error, author) => {
      if (error && error.number !== 404) throw error;
      if (error || author.type !== "author") throw new Error(404, `there is no author "${id}"`);
    });
    if (!accepted) throw new Error(429, "there was no time left to look for the authors");
  }
}
