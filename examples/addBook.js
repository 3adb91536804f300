/// <reference path="quire.d.ts" />

// Stored procedure: adds a book and counts it with each of its authors, in one transaction.
//
// Books and authors are items of one container with the partition key /publisher:
//
//   { "id": "ada",   "publisher": "acme", "type": "author", "name": "Ada", "countOfBooks": 0 }
//   { "id": "loops", "publisher": "acme", "type": "book", "title": "On Loops", "authors": ["ada"] }
//
// Call it with the publisher as partition key and the book as its one parameter. It answers the book as it was stored
// and the authors with their new counts. If an author is missing (400, sub-status 404) or the book is there already
// (400, sub-status 409), nothing of it happens.

/** @param {{ id: string, publisher: string, title: string, authors: string[] }} book */
function addBook(book) {
  const collection = getContext().getCollection();

  // Without the catch an error inside a promise would be swallowed, and the rest committed.
  main().catch((error) => getContext().abort(error));

  async function main() {
    const authors = [];
    for (const id of new Set(book.authors)) {
      const author = await read(id);
      author.countOfBooks = (author.countOfBooks || 0) + 1;
      authors.push(await replace(author));
    }
    const stored = await create({ ...book, type: "book" });
    getContext().getResponse().setBody({ book: stored, authors });
  }

  function read(id) {
    return promised((done) => collection.readDocument(`${collection.getAltLink()}/docs/${id}`, done));
  }

  function replace(item) {
    return promised((done) => collection.replaceDocument(item._self, item, { etag: item._etag }, done));
  }

  function create(item) {
    return promised((done) => collection.createDocument(collection.getSelfLink(), item, done));
  }

  function promised(start) {
    return new Promise((resolve, reject) => {
      const accepted = start((error, result) => (error ? reject(error) : resolve(result)));
      if (!accepted) reject(new Error(429, "there was no time left for the whole book"));
    });
  }
}
