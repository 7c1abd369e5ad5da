// An expression for the examples of the documentation: a server with three PVs on loopback, and a context for it.
{
    use std::sync::Arc;

    use fodo_net::{Context, Meta, PvTable, Server, ServerConfig, SharedPv};

    let temperature = SharedPv::builder(21.5).meta(Meta { units: "K".into(), ..Meta::default() }).build();
    let gap = SharedPv::builder(12.5).on_put(|value, _| Ok(value)).build();
    let spectrum = SharedPv::new(vec![0.0, 1.0, 4.0]);
    let pvs = [("demo:temperature", temperature), ("demo:gap", gap), ("demo:spectrum", spectrum)];
    let server = Server::start(ServerConfig::isolated(), Arc::new(PvTable::from(pvs))).unwrap();
    let context = Context::new(server.client_config());
    (server, context)
}
