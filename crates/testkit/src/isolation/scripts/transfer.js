// Moves money between two accounts. `reopen` closes the first one and gives all it has to the second; if it is closed
// already, it is opened with half of what the second one has.
function transfer(bank, from, to, amount, reopen) {
  const collection = getContext().getCollection();
  read(from, (source) => read(to, (target) => {
    if (reopen) return source ? close(source, target) : open(target);
    if (!source || !target) throw new Error(4005, "a closed account");
    if (source.balance < amount) throw new Error(4003, "not enough");
    source.balance -= amount;
    target.balance += amount;
    must(collection.replaceDocument(source._self, source));
    must(collection.replaceDocument(target._self, target));
  }));

  function close(source, target) {
    if (!target) throw new Error(4005, "a closed account");
    target.balance += source.balance + source.reserved;
    must(collection.deleteDocument(source._self));
    must(collection.replaceDocument(target._self, target));
  }

  function open(target) {
    if (!target) throw new Error(4005, "a closed account");
    const half = Math.floor(target.balance / 2);
    target.balance -= half;
    must(collection.createDocument(collection.getSelfLink(),
      { id: `account-${from}`, pk: bank, kind: "account", balance: half, reserved: 0 }));
    must(collection.replaceDocument(target._self, target));
  }

  function read(account, then) {
    must(collection.readDocument(`${collection.getAltLink()}/docs/account-${account}`, (error, found) => {
      if (error && error.number !== 404) throw error;
      then(error ? undefined : found);
    }));
  }

  function must(accepted) {
    if (!accepted) throw new Error(4002, "not accepted");
  }
}
