// An expression for the examples of the documentation: a server with three PVs on loopback, and a context for it.
{
    use std::sync::Arc;

    use fodo_net::{Context, Meta, PvTable, Server, ServerConfig, SharedPv};

    let kelvin = || Meta { units: "K".into(), ..Meta::default() };
    let table = PvTable::from([
        ("demo:temperature", SharedPv::builder(21.5).meta(kelvin()).build()),
        ("demo:gap", SharedPv::builder(12.5).meta(kelvin()).on_put(|value, _| Ok(value)).build()),
        ("demo:spectrum", SharedPv::builder(vec![0.0, 1.0, 4.0]).meta(kelvin()).build()),
    ]);
    let server = Server::start(ServerConfig::isolated(), Arc::new(table)).unwrap();
    let context = Context::new(server.client_config());
    (server, context)
}
