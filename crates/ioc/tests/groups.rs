//! Groups of PVs, served by an IOC and used by a client of pvAccess.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

use std::path::PathBuf;
use std::time::Duration;

use fodo_ioc::{Ioc, IocError, Loader, Policy, RunningIoc};
use fodo_net::{
    Channel, Context, Monitor, MonitorEvent, MonitorOptions, NodeValue, PvRequest, ServerConfig, Structure, Value,
};

const PATIENCE: Duration = Duration::from_secs(10);

fn loaded(records: &str) -> Ioc {
    let mut loader = Loader::default();
    loader.load("groups.db", "", &mut |_| Ok(records.into())).unwrap();
    Ioc::of(loader).unwrap()
}

fn serve(records: &str) -> (RunningIoc, Context) {
    let running = loaded(records).serve(ServerConfig::isolated()).unwrap();
    let context = Context::new(running.client_config());
    (running, context)
}

fn channel(context: &Context, name: &str) -> Channel {
    context.channel(&format!("pva://{name}")).unwrap()
}

fn everything() -> PvRequest {
    PvRequest::default()
}

fn next(monitor: &Monitor<Structure>) -> Structure {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(structure)) => return structure,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

fn changed(structure: &Structure) -> Vec<String> {
    structure.changed().iter().map(|bit| structure.kind().path(bit)).collect()
}

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Vec<(String, NodeValue)> {
    fields.map(|(path, value)| (path.to_owned(), NodeValue::Value(value))).into()
}

const CHAIN: &str = r#"
    record(calc, "x") { field(CALC, "VAL+1") field(FLNK, "y") info(Q:group, {"g": {"x": {+type:"plain", +channel:"VAL"}}}) }
    record(calc, "y") { field(CALC, "A*2") field(INPA, "x") info(Q:group, {"g": {"y": {+type:"plain", +channel:"VAL"}}}) }
    record(ao, "a") { info(Q:group, {"p": {"a": {+type:"plain", +channel:"VAL", +putorder:1}}}) }
    record(ao, "b") { info(Q:group, {"p": {"b": {+type:"plain", +channel:"VAL", +putorder:0}}}) }
    record(ao, "locked") { field(DISP, 1) info(Q:group, {"p": {"locked": {+type:"plain", +channel:"VAL", +putorder:2}}}) }
    record(ai, "r") { info(Q:group, {"p": {"r": {+type:"plain", +channel:"VAL"}}}) }
"#;

#[test]
fn the_changes_of_one_turn_of_the_database_are_one_update() {
    let (_ioc, context) = serve(CHAIN);
    let monitor = channel(&context, "g").monitor_structure(everything(), MonitorOptions::default());

    let first = next(&monitor);
    context.channel("x.PROC").unwrap().put(1).unwrap();
    let second = next(&monitor);
    context.channel("x.PROC").unwrap().put(1).unwrap();
    let third = next(&monitor);

    assert_eq!(changed(&first), ["record._options.queueSize", "record._options.atomic", "x", "y"]);
    assert_eq!((changed(&second), changed(&third)), (vec!["x".into(), "y".into()], vec!["x".into(), "y".into()]));
    assert_eq!([&second, &third].map(|update| update.get("y").cloned()), [Some(2.0.into()), Some(4.0.into())]);
}

#[test]
fn a_put_writes_the_members_that_it_sets_and_one_that_cannot_be_written_refuses_all() {
    let (_ioc, context) = serve(CHAIN);
    let group = channel(&context, "p");
    let read = |name: &str| context.channel(name).unwrap().get().unwrap().value;

    group.put_structure(&everything(), fields([("a", 1.5.into()), ("b", 2.5.into()), ("r", 9.0.into())])).unwrap();
    let refused = group.put_structure(&everything(), fields([("a", 7.0.into()), ("locked", 8.0.into())])).unwrap_err();
    let read_only = group.put_structure(&everything(), fields([("r", 9.0.into())])).unwrap_err();

    assert_eq!(["a", "b", "r", "locked"].map(read), [1.5, 2.5, 0.0, 0.0].map(Value::from));
    assert!(refused.to_string().contains("member locked cannot be written: DISP"), "{refused}");
    assert!(read_only.to_string().contains("+putorder"), "{read_only}");
}

#[test]
fn a_group_without_members_that_a_put_writes_is_read_only() {
    let (_ioc, context) = serve(CHAIN);

    let error = channel(&context, "g").put_structure(&everything(), fields([("x", 1.0.into())])).unwrap_err();

    assert!(error.to_string().contains("read-only"), "{error}");
}

#[test]
fn a_get_says_whether_it_was_atomic() {
    let (_ioc, context) = serve(CHAIN);
    let get = |request: &str| {
        let request = PvRequest::parse(request).unwrap();
        channel(&context, "g").get_structure(&request).unwrap().get("record._options.atomic").cloned()
    };

    assert_eq!(["", "record[atomic=false]"].map(get), [Some(true.into()), Some(false.into())]);
}

#[test]
fn every_get_contains_the_present_metadata_of_the_members() {
    let (_ioc, context) = serve(
        r#"
        record(ao, "a") { field(EGU, "mm") field(HIHI, 4) field(HHSV, MAJOR) info(Q:group, {"g": {"a": {+channel:"VAL"}}}) }
        record(mbbo, "m") { field(ZRST, "off") info(Q:group, {"g": {"m": {+channel:"VAL"}}}) }
        "#,
    );
    let get = || {
        let group = channel(&context, "g").get_structure(&everything()).unwrap();
        let paths =
            ["a.value", "a.display.units", "a.display.description", "a.valueAlarm.highAlarmLimit", "m.value.choices"];
        paths.map(|path| group.get(path).cloned().unwrap())
    };
    let texts = |texts: &[&str]| Value::from(texts.iter().map(|text| (*text).into()).collect::<Vec<fodo_net::Text>>());
    let before = [0.0.into(), "mm".into(), "".into(), 4.0.into(), texts(&["off"])];
    assert_eq!([get(), get()], [before.clone(), before]);

    for (field, value) in [("a.EGU", "um"), ("a.DESC", "how far"), ("a.HIHI", "5"), ("m.ONST", "on"), ("a", "2.5")] {
        context.channel(field).unwrap().put(value).unwrap();
    }

    let after = [2.5.into(), "um".into(), "how far".into(), 5.0.into(), texts(&["off", "on"])];
    assert_eq!([get(), get()], [after.clone(), after]);
}

#[test]
fn access_rules_apply_to_the_members_of_a_group() {
    let folder = std::env::temp_dir().join(format!("fodo-groups-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let rules: PathBuf = folder.join("groups.acf");
    std::fs::write(&rules, "ASG(DEFAULT) { RULE(1, WRITE) } ASG(R) { RULE(1, READ) } ASG(NONE) { RULE(1, NONE) }")
        .unwrap();
    let records = r#"
        record(ao, "a") { info(Q:group, {"g": {"a": {+type:"plain", +channel:"VAL", +putorder:0}}}) }
        record(ao, "b") { field(ASG, "R") info(Q:group, {"g": {"b": {+type:"plain", +channel:"VAL", +putorder:1}}}) }
        record(ao, "c") { field(ASG, "NONE") info(Q:group, {"h": {"c": {+type:"plain", +channel:"VAL"}}}) }
    "#;
    let policy = Policy { access_file: Some((rules, String::new())), ..Policy::default() };
    let running = loaded(records).with_policy(policy).unwrap().serve(ServerConfig::isolated()).unwrap();
    let context = Context::new(running.client_config());
    let group = channel(&context, "g");

    group.put_structure(&everything(), fields([("a", 1.0.into())])).unwrap();
    let refused = group.put_structure(&everything(), fields([("a", 2.0.into()), ("b", 2.0.into())]));
    let unreadable = channel(&context, "h").get_structure(&everything());

    assert!(refused.unwrap_err().to_string().contains("no write access"));
    assert!(unreadable.is_err());
    assert_eq!(context.channel("a").unwrap().get().unwrap().value, Value::from(1.0));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn mistakes_in_groups_are_errors_of_the_ioc() {
    let mut loader = Loader::default();
    let records = r#"record(ai, "r") { info(Q:group, {"g": {"r": {+channel: "VLA"}}}) }"#;
    loader.load("groups.db", "", &mut |_| Ok(records.into())).unwrap();

    let Err(IocError::Load(errors)) = Ioc::of(loader) else { panic!("the group has a mistake") };

    let place = errors[0].place();
    assert_eq!((errors.len(), place.as_str()), (1, "groups.db:1:40"));
    assert!(errors[0].message.contains("member r: record \"r\" has no field \"VLA\"; did you mean \"VAL\"?"));
}

#[test]
fn clients_of_channel_access_do_not_see_groups() {
    let (_ioc, context) = serve(CHAIN);
    let group = context.channel("ca://g").unwrap();

    let error = group.get_timeout(Duration::from_millis(200)).unwrap_err();

    assert!(error.to_string().contains("no server claimed the name"), "{error}");
}
