// Goes through steps over lists in one transaction and answers what each step saw before it changed anything.
// A step is { how: "replace" | "upsert", list, value }, { how: "read", list } or { how: "feed" | "query", first, end }.
function appendAndRead(partition, steps, fail) {
  const collection = getContext().getCollection();
  const seen = [];
  next();

  function next() {
    if (seen.length === steps.length) {
      if (fail) throw new Error(4001, "on purpose");
      getContext().getResponse().setBody(seen);
      return;
    }
    const step = steps[seen.length];
    switch (step.how) {
      case "read": return read(step.list, (found) => see(found ? found.values : []));
      case "feed": return feed(step, {}, undefined);
      case "query": return query(step);
      default: return append(step);
    }
  }

  function see(values) {
    seen.push(values);
    next();
  }

  function read(list, then) {
    must(collection.readDocument(`${collection.getAltLink()}/docs/list-${list}`, (error, found) => {
      if (error && error.number !== 404) throw error;
      then(error ? undefined : found);
    }));
  }

  function append(step) {
    read(step.list, (found) => {
      const before = found ? found.values.slice() : [];
      const item = found || { id: `list-${step.list}`, pk: partition, number: step.list, values: [] };
      item.values.push(step.value);
      const then = (error) => {
        if (error) throw error;
        see(before);
      };
      if (step.how === "upsert") must(collection.upsertDocument(collection.getSelfLink(), item, then));
      else if (found) must(collection.replaceDocument(found._self, item, then));
      else must(collection.createDocument(collection.getSelfLink(), item, then));
    });
  }

  function feed(step, found, continuation) {
    must(collection.readDocuments(collection.getSelfLink(), { pageSize: 7, continuation }, (error, items, page) => {
      if (error) throw error;
      for (const item of items) found[item.number] = item.values;
      if (page.continuation) feed(step, found, page.continuation);
      else see(between(step, found));
    }));
  }

  function query(step) {
    const text = {
      query: 'SELECT c.number, c["values"] FROM c WHERE c.number >= @first AND c.number < @end',
      parameters: [{ name: "@first", value: step.first }, { name: "@end", value: step.end }],
    };
    must(collection.queryDocuments(collection.getSelfLink(), text, (error, items, page) => {
      if (error) throw error;
      if (page.continuation) throw new Error(4004, "more than a page");
      const found = {};
      for (const item of items) found[item.number] = item.values;
      see(between(step, found));
    }));
  }

  function between(step, found) {
    const lists = [];
    for (let number = step.first; number < step.end; number++) lists.push(found[number] || []);
    return lists;
  }

  function must(accepted) {
    if (!accepted) throw new Error(4002, "not accepted");
  }
}
