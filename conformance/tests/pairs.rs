//! Every scenario for every pair of client and server.
#![forbid(unsafe_code)]

use fodo_conformance::Failure;
use fodo_conformance::client::{self, ClientKind};
use fodo_conformance::scenario::{self, Scenario};
use fodo_conformance::server::{Server, ServerKind};

fn run(client: ClientKind, server: ServerKind, scenario: Scenario) -> Result<(), Failure> {
    let server = Server::start(server)?;
    let mut client = client::start(client, &server)?;
    scenario(client.as_mut(), &server)
}

macro_rules! pair {
    ($($pair:ident: $client:ident on $server:ident { $($scenario:ident)* })*) => {$(
        mod $pair {
            use super::*;

            $(
                #[test]
                fn $scenario() {
                    if let Err(failure) = run(ClientKind::$client, ServerKind::$server, scenario::$scenario) {
                        panic!("{failure}");
                    }
                }
            )*
        }
    )*};
}

pair! {
    aioca_on_fodo: Aioca on Fodo {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    pyepics_on_fodo: Pyepics on Fodo {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    caproto_on_fodo: Caproto on Fodo {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    fodo_on_fodo: Fodo on Fodo {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    fodo_on_softioc: Fodo on SoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    fodo_on_caproto: Fodo on Caproto {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
    }
    fodo_on_pythonsoftioc: Fodo on PythonSoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }

    // Other people's clients on other people's servers: these say that the scenarios themselves are right.
    aioca_on_softioc: Aioca on SoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
        counters_at_10_hz_leave_no_gap
    }
    pyepics_on_softioc: Pyepics on SoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
    }
    caproto_on_softioc: Caproto on SoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told a_put_ends_after_the_chain_behind_it alarms_come_with_the_value
        fields_are_channels puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
    }
    pyepics_on_caproto: Pyepics on Caproto {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
    }
    aioca_on_pythonsoftioc: Aioca on PythonSoftIoc {
        every_record_is_read every_record_is_written every_record_is_monitored enums_go_by_label_and_by_index
        units_precision_and_limits_are_told puts_without_waiting_arrive_in_order four_megabytes_go_both_ways
    }
}
