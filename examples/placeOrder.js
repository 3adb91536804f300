/// <reference path="quire.d.ts" />

// Stored procedure: places an order if everything in it is in stock, and takes it out of the stock.
//
// Orders and products are items of one container with the partition key /store:
//
//   { "id": "tea", "store": "oslo", "type": "product", "price": 4.5, "stock": 10 }
//   { "id": "order-1", "store": "oslo", "type": "order", "lines": [{ "product": "tea", "quantity": 2 }] }
//
// Call it with the store as partition key and the order as its one parameter. It answers the order with its prices and
// total. A product that is missing (sub-status 404) or not there in the quantity (sub-status 4001) refuses the whole order with
// 400, and no stock changes, whatever other orders do at the same moment.

/** @param {{ id: string, store: string, lines: { product: string, quantity: number }[] }} order */
function placeOrder(order) {
  const collection = getContext().getCollection();
  const placed = { ...order, type: "order", total: 0, lines: /** @type {object[]} */ ([]) };
  take(0);

  function take(index) {
    if (index === order.lines.length) return place();
    const { product: id, quantity } = order.lines[index];
    if (!(quantity > 0)) throw new Error(400, `a quantity of ${quantity} cannot be ordered`);
    must(collection.readDocument(`${collection.getAltLink()}/docs/${id}`, (error, product) => {
      if (error) throw error;
      if (product.stock < quantity) throw new Error(4001, `only ${product.stock} of "${id}" are in stock`);
      product.stock -= quantity;
      placed.lines.push({ product: id, quantity, price: product.price });
      placed.total += quantity * product.price;
      must(collection.replaceDocument(product._self, product, (error) => {
        if (error) throw error;
        take(index + 1); // the same product again is read as it is now
      }));
    }));
  }

  function place() {
    must(collection.createDocument(collection.getSelfLink(), placed, (error, stored) => {
      if (error) throw error;
      getContext().getResponse().setBody(stored);
    }));
  }

  function must(accepted) {
    if (!accepted) throw new Error(429, "there was no time left for the whole order");
  }
}
