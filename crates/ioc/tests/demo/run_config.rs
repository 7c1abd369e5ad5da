// The configuration of the shell in the examples, which include this file.
fodo_ioc::shell::RunConfig {
    configure: Box::new(|_variable| Ok(fodo_net::ServerConfig::isolated())),
    policy: fodo_ioc::Policy::default(),
    has_put_log: false,
    ready: Box::new(|_ioc| String::new()),
    complete: Box::new(String::new),
    date: Box::new(|_format| String::new()),
    log: None,
    metrics: None,
    reccaster: None,
}
