// All accounts of a bank, page by page through the feed.
function audit() {
  const collection = getContext().getCollection();
  const accounts = [];
  page(undefined);

  function page(continuation) {
    const accepted = collection.readDocuments(collection.getSelfLink(), { pageSize: 3, continuation }, (error, items, answer) => {
      if (error) throw error;
      accounts.push(...items.filter((item) => item.kind === "account"));
      if (answer.continuation) page(answer.continuation);
      else getContext().getResponse().setBody(accounts);
    });
    if (!accepted) throw new Error(4002, "not accepted");
  }
}
