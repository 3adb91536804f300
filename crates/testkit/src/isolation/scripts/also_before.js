// Pre-trigger: appends to one more list, named by the item that is being written, and takes that wish out of the item.
function alsoBefore() {
  const collection = getContext().getCollection();
  const request = getContext().getRequest();
  const item = request.getBody();
  const also = item.also;
  delete item.also;
  request.setBody(item);
  const accepted = collection.readDocument(`${collection.getAltLink()}/docs/list-${also.list}`, (error, list) => {
    if (error) throw error;
    list.values.push(also.value);
    if (!collection.replaceDocument(list._self, list)) throw new Error(4002, "not accepted");
  });
  if (!accepted) throw new Error(4002, "not accepted");
}
