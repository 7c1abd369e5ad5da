//! The scenarios of pvAccess.

use std::time::Duration;

use super::{Exception, Matrix, Run, ScenarioRow};
use crate::client::ClientKind;
use crate::scenario::{self, any_type, life, pva, search};
use crate::server::{ServerProgram, TestServer};

/// The matrix of pvAccess.
pub const PV_ACCESS: Matrix = Matrix {
    title: "pvAccess",
    clients: &ClientKind::PVA,
    servers: &ServerProgram::PVA,
    rows: ROWS,
    start: TestServer::start_pva,
    scenario_duration_max: Duration::from_secs(60),
};

const ANY_CLIENT: &[ClientKind] = &ClientKind::PVA;
const ANY_SERVER: &[ServerProgram] = &ServerProgram::PVA;
const PROGRAM: &[ClientKind] = &[ClientKind::FodoProgram];
const JAVA: &[ClientKind] = &[ClientKind::CorePva];
const OTHERS: &[ClientKind] = &[ClientKind::FodoProgram, ClientKind::P4p, ClientKind::CorePva];
const QSRV: &[ServerProgram] = &[ServerProgram::Qsrv2, ServerProgram::Qsrv1];
const CORE_PVA: &[ServerProgram] = &[ServerProgram::CorePva];
/// Servers with values.
const VALUES: &[ServerProgram] = &[ServerProgram::P4p, ServerProgram::CorePva];

const NO_RECORDS: &str = "the server has values, not records";
const NO_STRUCTURES: &str = "the server's records are scalars, arrays and enums";
const ONE_ARGUMENT: &str = "the system limits an argument of a command to 128 KiB";

const ROWS: &[ScenarioRow] = &[
    ScenarioRow {
        title: "connect by unicast; info: type and number of elements",
        run: Run::Meet(pva::every_type_is_reported),
        exceptions: &[],
    },
    ScenarioRow { title: "get, every kind of value", run: Run::Meet(pva::every_record_is_read), exceptions: &[] },
    ScenarioRow {
        title: "find several servers that share the port for searches",
        run: Run::Find(pva::servers_that_share_a_port_are_found),
        exceptions: &[],
    },
    ScenarioRow {
        title: "find by name server, over TCP",
        run: Run::Find(search::by_name_server),
        exceptions: &[
            Exception(ANY_CLIENT, &[ServerProgram::Qsrv1], "the server does not answer searches over TCP"),
            Exception(JAVA, CORE_PVA, "the client connects to port 0, by which the server means the connection in use"),
        ],
    },
    ScenarioRow {
        title: "put with completion, every kind of value, including strings of 39 characters",
        run: Run::Meet(pva::every_record_is_written),
        exceptions: &[],
    },
    ScenarioRow {
        title: "put without completion, in order",
        run: Run::Meet(scenario::puts_without_waiting_arrive_in_order),
        exceptions: &[],
    },
    ScenarioRow {
        title: "completion after a chain of records",
        run: Run::Meet(scenario::a_put_ends_after_the_chain_behind_it),
        exceptions: &[Exception(ANY_CLIENT, VALUES, NO_RECORDS)],
    },
    ScenarioRow {
        title: "completion after work that takes time",
        run: Run::Meet(life::a_put_ends_after_work_that_takes_time),
        exceptions: &[],
    },
    ScenarioRow {
        title: "put with `record[process=true]`",
        run: Run::Meet(pva::a_put_processes_on_request),
        exceptions: &[
            Exception(ANY_CLIENT, VALUES, NO_RECORDS),
            Exception(JAVA, ANY_SERVER, "the client has no request for processing, other than that of passive records"),
        ],
    },
    ScenarioRow {
        title: "monitor, every kind of value",
        run: Run::Meet(pva::every_record_is_monitored),
        exceptions: &[],
    },
    ScenarioRow {
        title: "monitor a burst: in order, and the last value arrives",
        run: Run::Meet(pva::a_burst_arrives_in_order_with_its_last_value),
        exceptions: &[],
    },
    ScenarioRow {
        title: "monitor with flow control (`pipeline=true`)",
        run: Run::Meet(any_type::updates_continue_after_the_window),
        exceptions: &[Exception(
            &[ClientKind::P4p, ClientKind::CorePva],
            CORE_PVA,
            "the server does not answer a subscription that begins with a window",
        )],
    },
    ScenarioRow {
        title: "alarms with the value",
        run: Run::Meet(scenario::alarms_come_with_the_value),
        exceptions: &[Exception(ANY_CLIENT, VALUES, "limits of the server's values raise no alarm")],
    },
    ScenarioRow { title: "arrays that grow and shrink", run: Run::Meet(life::arrays_grow_and_shrink), exceptions: &[] },
    ScenarioRow {
        title: "arrays of 8 MB",
        run: Run::Meet(pva::eight_megabytes_go_both_ways),
        exceptions: &[Exception(PROGRAM, ANY_SERVER, ONE_ARGUMENT)],
    },
    ScenarioRow {
        title: "enums by label and by index",
        run: Run::Meet(pva::enums_go_by_label_and_by_index),
        exceptions: &[],
    },
    ScenarioRow {
        title: "units, precision and limits",
        run: Run::Meet(scenario::units_precision_and_limits_are_returned),
        exceptions: &[],
    },
    ScenarioRow {
        title: "a table: type, get, put of a column, monitor",
        run: Run::Meet(any_type::tables_are_read_written_and_monitored),
        exceptions: &[Exception(ANY_CLIENT, QSRV, NO_STRUCTURES)],
    },
    ScenarioRow {
        title: "a union: type, get",
        run: Run::Meet(any_type::unions_are_read),
        exceptions: &[Exception(ANY_CLIENT, QSRV, NO_STRUCTURES)],
    },
    ScenarioRow {
        title: "a union: put of a member, monitor",
        run: Run::Meet(any_type::unions_are_written),
        exceptions: &[
            Exception(ANY_CLIENT, QSRV, NO_STRUCTURES),
            Exception(JAVA, ANY_SERVER, "the client cannot select the member of a union that it puts"),
            Exception(
                &[ClientKind::P4p],
                &[ServerProgram::P4p],
                "the client blocks now and then, beyond its own timeout of 20 s",
            ),
        ],
    },
    ScenarioRow {
        title: "a variant: type, get, put of another type, monitor",
        run: Run::Meet(any_type::variants_change_their_type),
        exceptions: &[Exception(ANY_CLIENT, QSRV, NO_STRUCTURES)],
    },
    ScenarioRow {
        title: "RPC",
        run: Run::Meet(any_type::a_call_returns_a_result),
        exceptions: &[Exception(ANY_CLIENT, QSRV, NO_STRUCTURES)],
    },
    ScenarioRow {
        title: "RPC: an error of the procedure",
        run: Run::Meet(any_type::a_failed_call_is_reported),
        exceptions: &[
            Exception(ANY_CLIENT, QSRV, NO_STRUCTURES),
            Exception(JAVA, ANY_SERVER, "the client's call never ends if the server reports an error"),
        ],
    },
    ScenarioRow {
        title: "PROCESS: process a record without a value",
        run: Run::Meet(any_type::a_record_is_processed_without_a_value),
        exceptions: &[
            Exception(OTHERS, ANY_SERVER, "the client does not have this request"),
            Exception(ANY_CLIENT, VALUES, NO_RECORDS),
            Exception(ANY_CLIENT, &[ServerProgram::Qsrv2], "the server does not reply to this request"),
        ],
    },
    ScenarioRow {
        title: "fields as channels",
        run: Run::Meet(pva::fields_are_channels),
        exceptions: &[Exception(ANY_CLIENT, VALUES, NO_RECORDS)],
    },
    ScenarioRow { title: "a refused put", run: Run::Meet(pva::a_locked_value_refuses_puts), exceptions: &[] },
    ScenarioRow {
        title: "a read-only field",
        run: Run::Meet(pva::a_read_only_field_refuses_puts),
        exceptions: &[
            Exception(ANY_CLIENT, VALUES, NO_RECORDS),
            Exception(
                ANY_CLIENT,
                QSRV,
                "the server never answers a put with completion to a read-only field, and blocks the record for all \
                 clients",
            ),
        ],
    },
    ScenarioRow {
        title: "fifty counters at 10 Hz for ten seconds, without a gap",
        run: Run::Meet(scenario::counters_at_10_hz_leave_no_gap),
        exceptions: &[
            Exception(PROGRAM, ANY_SERVER, "fifty processes would measure the host"),
            Exception(ANY_CLIENT, CORE_PVA, "the server has no queue: it merges an update into one not yet sent"),
        ],
    },
    ScenarioRow {
        title: "reconnect, after the server was killed",
        run: Run::Restart(life::all_comes_back_with_the_server),
        exceptions: &[],
    },
];
