// Post-trigger: appends to one more list, named by the item that was written, and answers what it saw there.
function alsoAfter() {
  const collection = getContext().getCollection();
  const also = getContext().getRequest().getBody().also;
  const accepted = collection.readDocument(`${collection.getAltLink()}/docs/list-${also.list}`, (error, list) => {
    if (error) throw error;
    const before = list.values.slice();
    list.values.push(also.value);
    const replaced = collection.replaceDocument(list._self, list, (error) => {
      if (error) throw error;
      if (also.fail) throw new Error(4001, "on purpose");
      getContext().getResponse().setBody({ before });
    });
    if (!replaced) throw new Error(4002, "not accepted");
  });
  if (!accepted) throw new Error(4002, "not accepted");
}
