// Post-trigger of a payment: moves the money.
function pay() {
  const collection = getContext().getCollection();
  const payment = getContext().getRequest().getBody();
  move(payment.from, -payment.amount, () => move(payment.to, payment.amount, () => {}));

  function move(account, amount, then) {
    must(collection.readDocument(`${collection.getAltLink()}/docs/account-${account}`, (error, found) => {
      if (error) throw error;
      found.balance += amount;
      if (found.balance < 0) throw new Error(4003, "not enough");
      must(collection.replaceDocument(found._self, found, (error) => {
        if (error) throw error;
        then();
      }));
    }));
  }

  function must(accepted) {
    if (!accepted) throw new Error(4002, "not accepted");
  }
}
