mod cert;
fn main() {}
