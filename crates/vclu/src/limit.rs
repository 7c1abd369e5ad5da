//! All limits of this crate, each with its reason.

use std::time::Duration;

/// Requests that wait for the actor. A closed loop of 64 clients needs 64; a burst of subscriptions some thousand.
pub const QUEUE_REQUESTS_MAX: usize = 4096;

/// Instructions of one call: about a tenth of a second of Lua, far more than any script of a house needs.
pub const CALL_INSTRUCTIONS_MAX: u64 = 10_000_000;

/// Time of one call. Library functions such as `string.rep` work long in one instruction, so instructions alone bound nothing.
/// Less than the 5 s for which clients wait, and much more than a script needs on a busy computer.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(2);

/// Steps of one search with a pattern: some hundredths of a second.
pub const PATTERN_STEPS_MAX: u64 = 5_000_000;

/// Nesting of the items of a pattern; Lua refuses a pattern that nests deeper than 200.
pub const PATTERN_DEPTH_MAX: usize = 200;

/// Longest text that `load` compiles: the compiler takes long for some texts. A request is shorter.
pub const LOAD_BYTES_MAX: usize = 64 << 10;

/// Instructions between two checks of the budget: rarely enough to cost less than one percent.
pub const BUDGET_STEP: u32 = 1000;

/// The same while scripts use more than [`LARGE_MEMORY_BYTES`]: an instruction that compares two texts of megabytes takes about a
/// millisecond.
pub const LARGE_MEMORY_BUDGET_STEP: u32 = 50;

/// From this memory on, texts are long enough that the time of one instruction matters.
pub const LARGE_MEMORY_BYTES: usize = 4 << 20;

/// Memory of all scripts of a CLU. The heap of a device has 0.6 MB.
pub const MEMORY_BYTES_MAX: usize = 16 << 20;

/// Memory beyond the limit of scripts that the engine itself may use between calls, so that a script that has filled the
/// memory cannot stop the engine from answering.
pub const MEMORY_RESERVE_BYTES: usize = 1 << 20;

/// Compiled scripts that are kept: clients repeat some hundred texts.
pub const CHUNKS_MAX: usize = 512;

/// Longest script that is kept compiled. Longer texts are uploads or rare.
pub const CHUNK_TEXT_MAX: usize = 4096;

/// Calls that wait at once, in `SYSTEM.Wait` or for the result of a method; each holds a coroutine.
pub const WAITING_MAX: usize = 64;

/// How long a call waits for the result of a method. Methods end before; this is for objects that were replaced meanwhile.
pub const RESULT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest `SYSTEM.Wait`.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Coroutines kept for the next calls.
pub const IDLE_RUNNERS_MAX: usize = 8;

/// How often MAIN.LUA continues after `SYSTEM.Loop`. Objects have deadlines of their own, so this paces only a user's loop.
pub const LOOP_PERIOD: Duration = Duration::from_millis(100);

/// How long calls that have waited and handlers of events run before the CLU looks at requests again, and whether it must stop. At
/// least one of them runs.
pub const TURN_TIME_MAX: Duration = Duration::from_millis(100);

/// Events that wait for their handlers.
pub const EVENTS_MAX: usize = 1024;

/// Handlers of one event of one object.
pub const HANDLERS_MAX: usize = 16;

/// Objects of a CLU, as its interface file states for devices.
pub const OBJECTS_MAX: usize = 400;

/// Longest name of an object or a variable that is kept outside the memory of scripts.
pub const NAME_BYTES_MAX: usize = 256;

/// Arguments of one call of an object or of `SYSTEM`; the longest constructor has seven.
pub const ARGUMENTS_MAX: usize = 16;

/// Longest value that a script gives to an object: texts with schedules and rules have some hundred bytes.
pub const ARGUMENT_BYTES_MAX: usize = 4096;

/// Longest value that a script passes through an object to a PV, as a list of some thousand numbers.
pub const TRANSFER_BYTES_MAX: usize = 64 << 10;

/// Elements of a PV's array that a script receives; more than a script of a house uses, and each copy of them takes memory of
/// the scripts.
pub const PV_ELEMENTS_MAX: usize = 4096;

/// Bytes of the texts of a PV that a script receives.
pub const PV_TEXT_BYTES_MAX: usize = 128 << 10;

/// Updates of a monitored PV that wait until the CLU takes them; further ones replace the last and are counted.
pub const PV_UPDATES_MAX: usize = 64;

/// Events of one monitor that the CLU takes before it does something else. Connections are rare.
pub const PV_EVENTS_PER_TURN: usize = 16;

/// Puts of one Pv object that wait for the server.
pub const PV_PUTS_MAX: usize = 16;

/// How long a get or a put of a Pv object takes, until a script sets `Timeout`; as other clients of EPICS.
pub const PV_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a script waits for another CLU. Less than the 5 s for which clients wait, so that a script which calls a CLU that
/// does not reply still answers its own client.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(4);

/// Calls of one RemoteCLU that wait for a reply; as many as calls that wait at all.
pub const REMOTE_CALLS_MAX: usize = WAITING_MAX;

/// Entries of the log.
pub const LOG_ENTRIES_MAX: usize = 256;

/// Longest text of one entry of the log.
pub const LOG_TEXT_MAX: usize = 512;

/// Lines in the feature `Log` of a CLU, which a client reads in one reply.
pub const CLU_LOG_LINES_MAX: usize = 16;

/// Nesting of a table that is printed.
pub const TABLE_DEPTH_MAX: usize = 16;

/// Values within a table that is printed or stored; a reply has 2 kB.
pub const TABLE_VALUES_MAX: usize = 10_000;

/// Bytes of the texts within a value that leaves Lua: they are copied out of the memory of the scripts, and a text that is in a
/// table many times is copied as often. A reply has 2 kB.
pub const TABLE_BYTES_MAX: usize = 1 << 20;

/// Longest script of a file: Lua compiles it in one step, which takes seconds for some texts of this length. The heap of a
/// device has 0.6 MB.
pub const SCRIPT_BYTES_MAX: usize = 256 << 10;

/// Longest file of the folder.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Shortest period of a Timer, so that a timer cannot occupy the actor.
pub const TIMER_PERIOD_MIN: Duration = Duration::from_millis(10);

/// Variables of one Storage object.
pub const STORED_VARIABLES_MAX: usize = 256;

/// Longest name of the file of a Storage object, without its ending: file systems accept 255 bytes.
pub const STORED_NAME_BYTES_MAX: usize = 240;

/// Longest file of a Storage object, which also keeps it in memory. The heap of a device has 0.6 MB.
pub const STORED_BYTES_MAX: usize = 64 << 10;

/// How often a Storage object compares its variables with what it has written.
pub const STORAGE_PERIOD: Duration = Duration::from_secs(1);

/// Publications of scripts that wait for the MQTT broker. A house sends some in a second, so they last some minutes.
pub const MQTT_QUEUED_MAX: usize = 1024;

/// Bytes of these publications.
pub const MQTT_QUEUED_BYTES_MAX: usize = 4 << 20;

/// Retained MQTT topics: the entities and states of all objects with a dozen features and methods each.
pub const MQTT_RETAINED_MAX: usize = 16_384;

/// Received MQTT messages that wait for one subscriber. While they do, nothing is read, and the broker keeps the others.
pub const MQTT_RECEIVED_MAX: usize = 64;

/// Longest payload of a received MQTT message; longer ones are dropped. Messages of a house have some hundred bytes.
pub const MQTT_PAYLOAD_BYTES_MAX: usize = 64 << 10;

/// Longest packet of the MQTT broker. A longer one ends the connection, since it cannot be skipped.
pub const MQTT_PACKET_BYTES_MAX: u32 = 1 << 20;

/// Messages sent to the MQTT broker that wait for its acknowledgement; brokers accept some 20.
pub const MQTT_IN_FLIGHT_MAX: usize = 16;

/// Filters in one request to the MQTT broker: some brokers refuse more.
pub const MQTT_FILTERS_PER_REQUEST_MAX: usize = 8;

/// How long a connection to the MQTT broker may take.
pub const MQTT_CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the MQTT broker may take for a reply or for reading what was sent.
pub const MQTT_REPLY_TIME_MAX: Duration = Duration::from_secs(5);

/// The pause before the first and before later attempts to connect to the MQTT broker again.
pub const MQTT_PAUSE_MIN: Duration = Duration::from_millis(250);

/// The longest pause between two attempts: a broker that has returned is found within it.
pub const MQTT_PAUSE_MAX: Duration = Duration::from_secs(15);

/// How long a connection to the MQTT broker must last to be regarded as stable. Shorter ones are repeated with growing pauses
/// and are reported once; longer than a broker needs to end the connection because of a message.
pub const MQTT_STABLE_TIME: Duration = Duration::from_secs(10);

/// How many connections may end while the same message waits for its acknowledgement, until the message is given up. After the
/// first one it is sent alone. A broker that starts again ends one connection, and MQTT 3.1.1 has no other refusal.
pub const MQTT_ATTEMPTS_MAX: u32 = 4;

/// Commands from MQTT that wait for the reply of another CLU; a person does not press more buttons within its timeout.
pub const MQTT_COMMANDS_MAX: usize = 64;

/// How long scripts may take to set the MQTT features one after another.
pub const MQTT_SETTLE_TIME: Duration = Duration::from_millis(200);

/// How often the states of objects are compared with what was published: unnoticeable for a person.
pub const MQTT_SCAN_PERIOD: Duration = Duration::from_millis(100);

/// The same for times that count by themselves.
pub const MQTT_SLOW_SCAN_PERIOD: Duration = Duration::from_secs(10);

/// Sensors that scripts announce with `mqttSendDiscovery`, and identifiers of `mqttSendValue`.
pub const MQTT_VALUES_MAX: usize = 256;

/// Longest text of a state: Home Assistant refuses longer ones.
pub const MQTT_TEXT_STATE_MAX: usize = 255;

/// HTTP requests of scripts at once; others wait within their own timeout.
pub const HTTP_REQUESTS_MAX: usize = 16;

/// Longest body of an HTTP message in either direction.
pub const HTTP_BODY_BYTES_MAX: usize = 64 << 10;

/// Connections to the HTTP server at once.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

/// Requests that wait for one HttpListener.
pub const HTTP_QUEUED_MAX: usize = 16;

/// The start line and headers of an HTTP request.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers of an HTTP request; browsers send about 20.
pub const HTTP_HEADERS_MAX: usize = 64;

/// How long a client of the HTTP server may take for its headers.
pub const HTTP_HEAD_TIME_MAX: Duration = Duration::from_secs(5);

/// How long a script may take for `SendResponse`, from the arrival of the request.
pub const HTTP_ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// How long the scripts may take to set the `Path` of an HttpListener before its conflict with another one is reported.
pub const HTTP_PATH_TIME: Duration = Duration::from_secs(1);

/// How long a connection to the HTTP server may be open: headers, body and response.
pub const HTTP_CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);

/// The pause after a connection could not be accepted, as no descriptor is left.
pub const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Items of one subscription or `fetchValues`; a client's pages have 16.
pub const FETCH_ITEMS_MAX: usize = 256;

/// Bytes of the values of one subscription or `fetchValues`: a reply is one datagram.
pub const FETCH_BYTES_MAX: usize = 64 << 10;

/// Bytes of the values that the PVs of a CLU in this process read together: as much as the memory of the scripts.
pub const FETCH_PVS_BYTES_MAX: usize = MEMORY_BYTES_MAX;

/// Subscriptions that one request can add and remove.
pub const SUBSCRIPTION_CHANGES_MAX: usize = 64;

/// Longest file with the CLUs of a site: a CLU needs some hundred bytes.
pub const SITE_FILE_BYTES_MAX: u64 = 1 << 20;

/// CLUs of one site, each with a thread and a socket; a large building has some tens.
pub const SITE_CLUS_MAX: usize = 256;

/// Interface files and folders in the folder of a site; Object Manager has some hundred.
pub const INTERFACE_FILES_MAX: usize = 4096;

/// PVs of one CLU: the items that a client can subscribe to, and the methods and events of as many objects.
pub const PVS_MAX: usize = 64 * 1024;

/// Puts, calls and reads of the PVs of one CLU that wait for its replies. A real CLU answers some hundred in the time after
/// which a request has failed.
pub const TASKS_MAX: usize = 1024;

/// The bytes of a text over Channel Access, as an array of characters: longer than any reply of a CLU on the network, and small
/// enough for clients whose EPICS_CA_MAX_ARRAY_BYTES is the default of 16384.
pub const LONG_TEXT_BYTES_MAX: usize = 8192;

/// Puts that wait for the end of another one to the same PV.
pub const PUTS_WAITING_MAX: usize = 64;

/// How often the PVs of a CLU in this process are read, and the status of the connection is published.
pub const PV_PERIOD: Duration = Duration::from_secs(1);

/// How long a CLU in this process may take to answer until its PVs are INVALID: more than twice the longest call of a script.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How often values that a CLU does not report are read: as often as a client registers again.
pub const POLL_PERIOD: Duration = Duration::from_secs(5);

/// Values in one request to read them; the same as in a registration.
pub const POLL_ITEMS: usize = 16;

/// How long the start of the PVs waits for the list of objects of a CLU in this process.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the value of a put is read back, because a report arrived meanwhile: reports are at least 100 ms apart. After
/// that, the newest report is as good.
pub const READ_BACKS_MAX: u32 = 4;
