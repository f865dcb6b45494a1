package fleet

// OrderExpired refuses an order whose time has passed by the hub's clock; the hub
// sends a fresh one while it still wants it obeyed.
const OrderExpired Code = "order_expired"
