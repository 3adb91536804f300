/// <reference path="quire.d.ts" />

// Post-trigger for creating books: keeps an item "metadata" in the book's logical partition up to date.
//
//   { "id": "metadata", "publisher": "acme", "type": "metadata", "books": 2, "pages": 440, "newest": "On Loops" }
//
// Create it with triggerType "Post" and triggerOperation "Create", and name it in each request: `post_trigger_include=
// "countBooks"` in Python, `{ postTriggerInclude: ["countBooks"] }` in JavaScript. It is one transaction with the create:
// if it fails, the book is not stored either.

function countBooks() {
  const collection = getContext().getCollection();
  const book = getContext().getResponse().getBody();

  must(collection.readDocument(`${collection.getAltLink()}/docs/metadata`, (error, found) => {
    if (error && error.number !== 404) throw error;
    const metadata = found || { id: "metadata", publisher: book.publisher, type: "metadata", books: 0, pages: 0 };
    metadata.books += 1;
    metadata.pages += book.pages || 0;
    metadata.newest = book.title;
    must(collection.upsertDocument(collection.getSelfLink(), metadata, failed));
  }));

  function failed(error) {
    if (error) throw error;
  }

  function must(accepted) {
    if (!accepted) throw new Error(429, "there was no time left to count the book");
  }
}
