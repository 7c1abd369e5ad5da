//! Subscriptions: values that the CLU sends by itself.

use std::time::Duration;

use fodo_clu::command::Request;

use crate::world::World;

const TIMER: &str = "T = OBJECT:new(6, \"T\")";

#[test]
fn both_forms_of_a_registration_report_features_and_user_variables() {
    let world = World::with_objects(TIMER);
    let (mut client, receiver) = (world.client(), world.client());
    client.eval("T:set(0, 50)");
    client.eval("setVar('name', 'first')");
    let port = receiver.socket.local_addr().unwrap().port();

    let values = r#"clientReport:7:{50,"first"}"#;
    assert_eq!(client.eval("SYSTEM:clientRegister(0, 7, 1, {{T, 0}, \"name\"})"), values);
    let register = format!("SYSTEM:clientRegister(\"127.0.0.1\", {port}, 7, {{{{T, 0}}, \"name\"}})");
    assert_eq!(client.eval(&register), values);
    assert_eq!(world.server.n_subscriptions(), 2);

    client.eval("T:set(0, 60)");
    client.wait_report(r#"clientReport:7:{60,"first"}"#);
    receiver.wait_report(r#"clientReport:7:{60,"first"}"#);
    client.eval("setVar('name', 'second')");
    client.wait_report(r#"clientReport:7:{60,"second"}"#);
    receiver.wait_report(r#"clientReport:7:{60,"second"}"#);

    assert_eq!(client.eval("SYSTEM:clientDestroy(0, 7)"), "7");
    assert_eq!(client.eval(&format!("SYSTEM:clientDestroy(\"127.0.0.1\", {port}, 7)")), "7");
    assert_eq!(world.server.n_subscriptions(), 0);
}

#[test]
fn a_registration_that_is_not_possible_is_answered_with_the_reason() {
    let world = World::with_objects(TIMER);
    let mut client = world.client();

    for (register, reason) in [
        ("SYSTEM:clientRegister(\"here\", 4344, 1, {{T, 0}})", "error: \"here\" is not an IPv4 address"),
        ("SYSTEM:clientRegister(\"255.255.255.255\", 4344, 1, {{T, 0}})", "error: reports cannot be sent"),
        ("SYSTEM:clientRegister(0, -1, 1, {{T, 0}})", "error: the client id -1 must be between"),
    ] {
        let value = client.eval(register);
        assert!(value.starts_with(reason), "{value}");
    }
    assert_eq!(world.server.n_subscriptions(), 0);
}

#[test]
fn a_registration_that_is_not_renewed_expires() {
    let world = World::with_objects(TIMER);
    let mut client = world.client();
    client.eval("SYSTEM:clientRegister(0, 1, 1, {{T, 0}})");
    client.eval("SYSTEM:clientRegister(0, 2, 1, {{T, 0}})");

    world.advance(Duration::from_secs(40));
    client.eval("SYSTEM:clientRegister(0, 2, 1, {{T, 0}})");
    world.advance(Duration::from_secs(30));
    client.settle();
    client.settle();

    assert_eq!(world.server.n_subscriptions(), 1);
    assert_eq!(world.server.counts().subscriptions_expired, 1);
}

#[test]
fn a_subscription_lasts_over_a_reset_and_is_made_again_after_a_restart() {
    let world = World::with_objects(TIMER);
    let mut client = world.client();
    client.eval("T:set(0, 50)");
    client.eval("SYSTEM:clientRegister(0, 1, 1, {{T, 0}})");

    client.send(&client.encrypted(&Request::Reset { client: None }));
    while client.receive_text() != "resp_reset:127.0.0.1" {}
    client.eval("T:set(0, 70)");
    client.wait_report("clientReport:1:{70}");

    let world = world.restart();
    assert_eq!(world.server.n_subscriptions(), 0);
    client.clu = world.server.address();
    assert_eq!(client.eval("T:set(0, 90)"), "nil");
    assert_eq!(client.eval("SYSTEM:clientRegister(0, 1, 1, {{T, 0}})"), "clientReport:1:{90}");
    client.eval("T:set(0, 91)");
    client.wait_report("clientReport:1:{91}");
}

#[test]
fn a_change_by_an_event_is_reported() {
    let world = World::with_objects(
        "T = OBJECT:new(6, \"T\") T:set(0, 50) T:add_event(0, function() n = (n or 0) + 1 setVar('ticks', n) end)",
    );
    let mut client = world.client();
    client.eval("SYSTEM:clientRegister(0, 1, 1, {\"ticks\"})");

    client.eval("T:execute(0)");

    client.wait_report("clientReport:1:{1}");
}
