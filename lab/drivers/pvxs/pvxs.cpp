// The driver and the watcher of pvxs. `lab/src/driver/mod.rs` and `lab/src/load/worker.rs` describe their requests.
//
// Gets and puts are opened once and then repeated (`reExecGet`, `reExecPut`), which is the fastest way to use pvxs.

#define PVXS_ENABLE_EXPERT_API

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <pvxs/client.h>
#include <pvxs/version.h>

namespace {

using pvxs::Value;
using pvxs::client::Context;
using pvxs::client::Operation;
using pvxs::client::Result;
using pvxs::client::Subscription;
using Operations = std::vector<std::shared_ptr<Operation>>;
using Clock = std::chrono::steady_clock;

const char* const READING = "field(value,alarm,timeStamp)";
const char* const WHOLE = "field()";
const char* const PROCESSED = "field(value,alarm,timeStamp)record[process=true]";
const char* const PUT = "field(value)";
const char* const COMPLETED = "field(value)record[block=true]";
// The laboratory's own limit for each point is shorter.
const auto BATCH_MAX = std::chrono::seconds(180);
// pvAccess does not report the maximum number of elements; the laboratory's waveform has this many.
const uint64_t ELEMENTS_MAX = 10'000'000;
const size_t IN_FLIGHT_MAX = 100;
// A counter counts from 0 to this value and begins again.
const double COUNTER_LAST = 999;
const size_t ROUNDS_MIN = 2, ROUNDS_MAX = 100'000;
// QSRV2 leaves some of a thousand subscriptions without any update when they are created at once on a network.
const size_t SUBSCRIPTIONS_AT_ONCE = 100;

uint64_t ns_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

uint64_t unix_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string quoted(const std::string& text) {
    std::string json = "\"";
    for (char letter : text) {
        if (letter == '"' || letter == '\\') json += '\\';
        json += (unsigned char)letter < 32 ? ' ' : letter;
    }
    return json + "\"";
}

// A failure as an answer of the protocol.
struct Failed : std::runtime_error {
    using std::runtime_error::runtime_error;
};

Failed unable(const std::string& what, const std::string& why) {
    return Failed("{\"failed\":{\"operation\":{\"what\":" + quoted(what) + ",\"why\":" + quoted(why) + "}}}");
}

Failed wrong_value(double value, const std::string& expected) {
    return Failed("{\"failed\":{\"wrong_value\":{\"value\":" + std::to_string(value) +
                  ",\"expected\":" + quoted(expected) + "}}}");
}

// A request is an object of one member, whose value is an object of numbers and texts without escapes.
struct Request {
    std::string line, verb;

    explicit Request(const std::string& text) : line(text) {
        auto start = text.find('"'), end = text.find('"', start + 1);
        if (start == std::string::npos || end == std::string::npos) {
            throw Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted(text) + "}}}");
        }
        verb = text.substr(start + 1, end - start - 1);
    }

    std::string text(const std::string& name) const {
        auto at = line.find("\"" + name + "\":");
        if (at == std::string::npos) throw Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted(line) + "}}}");
        at += name.size() + 3;
        if (line[at] == '"') return line.substr(at + 1, line.find('"', at + 1) - at - 1);
        return line.substr(at, line.find_first_of(",}", at) - at);
    }

    uint64_t number(const std::string& name) const { return std::stoull(text(name)); }
};

struct Channels {
    std::string before, after;
    size_t width = 0, n;
    bool is_distinct, has_number;

    explicit Channels(const Request& request)
        : n(request.number("n")), is_distinct(request.text("variant") == "distinct") {
        auto pattern = request.text("pattern");
        auto open = pattern.find('{');
        has_number = open != std::string::npos;
        before = pattern.substr(0, open);
        if (!has_number) return;
        auto close = pattern.find('}');
        after = pattern.substr(close + 1);
        auto format = pattern.substr(open + 1, close - open - 1);
        if (format.size() > 1) width = std::stoul(format.substr(1));
    }

    size_t number(size_t index) const { return is_distinct ? index : 0; }

    std::string name(size_t index) const {
        if (!has_number) return before;
        auto digits = std::to_string(number(index));
        if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
        return before + digits + after;
    }

    void require_distinct() const {
        if (n > 1 && (!is_distinct || !has_number)) {
            throw unable("separate channels to one PV", "pvxs shares one channel per name");
        }
    }

    void check(size_t index, double value) const {
        if (has_number ? value != number(index) : !std::isfinite(value)) {
            throw wrong_value(value, has_number ? std::to_string(number(index)) : "a number");
        }
    }
};

// Waits for callbacks of pvxs' thread.
class Countdown {
    std::mutex mutex;
    std::condition_variable changed;
    size_t n_done = 0;
    std::string error;

public:
    void one(const std::string& why = {}) {
        std::lock_guard<std::mutex> guard(mutex);
        n_done++;
        if (error.empty()) error = why;
        changed.notify_one();
    }

    void wait(size_t n, const char* what) {
        std::unique_lock<std::mutex> guard(mutex);
        if (!changed.wait_for(guard, BATCH_MAX, [&] { return n_done >= n || !error.empty(); })) {
            throw unable("{" + std::string(what), std::to_string(n - n_done) + " are missing");
        }
        if (!error.empty()) throw unable("{" + std::string(what), error);
    }
};

std::string error_of(Result& result) {
    try {
        result();
    } catch (std::exception& why) {
        return why.what();
    }
    return {};
}

double next_of(double number) {
    return number < COUNTER_LAST ? number + 1 : 0;
}

// The updates of one counter, as `CycleTally` of `lab/src/driver/rounds.rs`.
struct CycleTally {
    double last = -1;
    uint64_t received = 0, missing = 0, duplicates = 0, out_of_order = 0, wrong = 0;

    void add(double value) {
        if (!(value >= 0 && value <= COUNTER_LAST) || value != std::floor(value)) {
            wrong++;
            return;
        }
        if (last < 0) {
            last = value;
            return;
        }
        received++;
        const auto cycle = (int)COUNTER_LAST + 1;
        auto step = ((int)value + cycle - (int)last) % cycle;
        if (step == 0) {
            duplicates++;
        } else if (step <= cycle / 2) {
            missing += step - 1;
            last = value;
        } else {
            out_of_order++;
        }
    }
};

// Repeats rounds, as `RoundSpans::repeat` of `lab/src/driver/rounds.rs`; returns their times.
template <class Round> std::string repeat(const Request& request, Round round) {
    auto warm_up = std::chrono::milliseconds(request.number("warm_up_ms"));
    auto duration = std::chrono::milliseconds(request.number("duration_ms"));
    auto start = Clock::now();
    do {
        round();
    } while (Clock::now() - start < warm_up);
    std::string times;
    size_t n_rounds = 0;
    start = Clock::now();
    while (n_rounds < ROUNDS_MIN || (Clock::now() - start < duration && n_rounds < ROUNDS_MAX)) {
        times += (n_rounds++ ? "," : "") + std::to_string(round());
    }
    return times;
}

struct Timed {
    uint64_t ns;
    size_t n;
    int64_t created_ns = -1;

    std::string json() const {
        auto text = "{\"timed\":{\"ns\":" + std::to_string(ns) + ",\"n\":" + std::to_string(n);
        if (created_ns >= 0) text += ",\"created_ns\":" + std::to_string(created_ns);
        return text + "}}";
    }
};

int32_t element(uint64_t index, uint64_t salt) {
    return (int32_t)((uint32_t)index * 2654435761u ^ (uint32_t)salt);
}

class Driver {
    Context context = Context::fromEnv();
    std::string pv;
    std::shared_ptr<Operation> get_of_pv, put_of_pv;
    Value put_prototype;

public:
    std::string answer(const Request& request) {
        auto& verb = request.verb;
        if (verb == "open") return open(request);
        if (verb == "get_scalars") return get_scalars(request.number("n"));
        if (verb == "move_array") {
            return move_array(request.number("n_elements"), request.number("salt"), request.number("n_gets"));
        }
        if (verb == "create_contexts") return create_contexts(request.number("n"), request.text("pv")).json();
        if (verb == "connect_one_by_one") return connect_one_by_one(Channels(request)).json();
        if (verb == "connect_at_once") return connect_at_once(Channels(request)).json();
        if (verb == "get_at_once") return gets(Channels(request), READING, SIZE_MAX).json();
        if (verb == "get_whole_at_once") return gets(Channels(request), WHOLE, SIZE_MAX).json();
        if (verb == "get_in_flight") return gets(Channels(request), READING, IN_FLIGHT_MAX).json();
        if (verb == "monitor_at_once") return monitor_at_once(Channels(request)).json();
        if (verb == "put_at_once") return put_at_once(Channels(request)).json();
        if (verb == "commands") return commands(Channels(request)).json();
        if (verb == "get_group") {
            return get_group(request.text("pv"), request.number("n_members"), request.number("n"));
        }
        if (verb == "process_gets") return process_gets(request);
        if (verb == "event_rounds") return event_rounds(request);
        throw unable(verb, "this driver does not support it");
    }

private:
    static std::shared_ptr<Operation> open_get(Context& of, const std::string& name, const char* request,
                                               Countdown& opened) {
        return of.get(name).pvRequest(request).autoExec(false).onInit([&opened](const Value&) { opened.one(); }).exec();
    }

    std::string open(const Request& request) {
        auto n = request.number("n_channels");
        if (n != 1) throw unable("separate channels to one PV", "pvxs shares one channel per name");
        pv = request.text("pv");
        Countdown opened;
        get_of_pv = open_get(context, pv, READING, opened);
        put_of_pv = context.put(pv)
                        .pvRequest(COMPLETED)
                        .autoExec(false)
                        .fetchPresent(false)
                        .onInit([this, &opened](const Value& prototype) {
                            put_prototype = prototype.cloneEmpty();
                            opened.one();
                        })
                        .build([](Value&& value) { return std::move(value); })
                        .exec();
        opened.wait(2, "open");
        return "{\"opened\":{\"version\":" + quoted(pvxs::version_str()) +
               ",\"n_channels\":1,\"element_count_max\":" + std::to_string(ELEMENTS_MAX) + "}}";
    }

    static Value get(Operation& operation) {
        Countdown done;
        Value value;
        operation.reExecGet([&](Result&& result) {
            std::string error;
            try {
                value = result();
            } catch (std::exception& why) {
                error = why.what();
            }
            done.one(error);
        });
        done.wait(1, "get");
        return value;
    }

    std::string get_scalars(size_t n) {
        if (!get_of_pv) throw unable("{get", "no channel is open");
        std::string times;
        double first = 0, last = -INFINITY;
        for (size_t index = 0; index < n; index++) {
            auto start = Clock::now();
            auto value = get(*get_of_pv);
            times += (index ? "," : "") + std::to_string(ns_since(start));
            auto number = value["value"].as<double>();
            if (!std::isfinite(number) || number < last || value["timeStamp.secondsPastEpoch"].as<int64_t>() <= 0) {
                throw wrong_value(number, "a counter at the last value or beyond, with its time");
            }
            if (index == 0) first = number;
            last = number;
        }
        return "{\"scalars\":{\"latencies_ns\":[" + times + "],\"first\":" + std::to_string(first) +
               ",\"last\":" + std::to_string(n ? last : first) + "}}";
    }

    std::string get_group(const std::string& name, size_t n_members, size_t n) {
        Countdown opened;
        auto operation = open_get(context, name, WHOLE, opened);
        opened.wait(1, "open");
        std::string times;
        for (size_t round = 0; round < n; round++) {
            auto start = Clock::now();
            auto value = get(*operation);
            times += (round ? "," : "") + std::to_string(ns_since(start));
            for (size_t index = 0; index < n_members; index++) {
                auto member = std::string(index < 10 ? "m0" : "m") + std::to_string(index) + ".value";
                auto number = value[member].as<double>();
                if (number != (double)index) throw wrong_value(number, std::to_string(index) + " of " + member);
            }
        }
        return "{\"array\":{\"latencies_ns\":[" + times + "],\"n_elements\":" + std::to_string(n_members) + "}}";
    }

    static void put(Operation& operation, const Value& value) {
        Countdown done;
        operation.reExecPut(value, [&](Result&& result) {
            std::string error;
            try {
                result();
            } catch (std::exception& why) {
                error = why.what();
            }
            done.one(error);
        });
        done.wait(1, "put");
    }

    std::string move_array(size_t n_elements, uint64_t salt, size_t n_gets) {
        if (!get_of_pv) throw unable("{get", "no channel is open");
        std::string times;
        for (size_t round = 0; round < n_gets; round++) {
            pvxs::shared_array<int32_t> elements(n_elements);
            for (size_t index = 0; index < n_elements; index++) elements[index] = element(index, salt + round);
            auto argument = put_prototype.cloneEmpty();
            argument["value"] = elements.freeze();
            put(*put_of_pv, argument);
            auto start = Clock::now();
            auto value = get(*get_of_pv);
            times += (round ? "," : "") + std::to_string(ns_since(start));
            auto received = value["value"].as<pvxs::shared_array<const int32_t>>();
            if (received.size() != n_elements) {
                throw Failed("{\"failed\":{\"wrong_count\":{\"n\":" + std::to_string(received.size()) +
                             ",\"expected\":" + std::to_string(n_elements) + "}}}");
            }
            for (size_t index = 0; index < n_elements; index++) {
                if (received[index] != element(index, salt + round)) {
                    throw Failed("{\"failed\":{\"wrong_element\":{\"index\":" + std::to_string(index) + ",\"value\":" +
                                 std::to_string(received[index]) +
                                 ",\"expected\":" + std::to_string(element(index, salt + round)) + "}}}");
                }
            }
        }
        return "{\"array\":{\"latencies_ns\":[" + times + "],\"n_elements\":" + std::to_string(n_elements) + "}}";
    }

    Timed create_contexts(size_t n, const std::string& name) {
        auto start = Clock::now();
        std::vector<Context> contexts;
        for (size_t index = 0; index < n; index++) contexts.push_back(Context::fromEnv());
        auto ns = ns_since(start);
        if (n > 0) {
            contexts.front().get(name).exec()->wait(10.0);
            contexts.back().get(name).exec()->wait(10.0);
        }
        return {ns, n};
    }

    // A context without channels, but with the circuit to the server of the last `open`.
    Context fresh(std::vector<std::shared_ptr<pvxs::client::Connect>>& kept) {
        auto of = Context::fromEnv();
        Countdown connected;
        // Another name for the PV, so that a batch connects its own channel.
        auto name = pv.find('.') == std::string::npos ? pv + ".VAL" : pv;
        kept.push_back(of.connect(name).onConnect([&connected] { connected.one(); }).exec());
        connected.wait(1, "connecting");
        return of;
    }

    Timed connect_one_by_one(const Channels& channels) {
        channels.require_distinct();
        std::vector<std::shared_ptr<pvxs::client::Connect>> connects;
        auto of = fresh(connects);
        Countdown connected;
        auto start = Clock::now();
        for (size_t index = 0; index < channels.n; index++) {
            connects.push_back(of.connect(channels.name(index)).onConnect([&connected] { connected.one(); }).exec());
            connected.wait(index + 1, "connecting");
        }
        return {ns_since(start), channels.n};
    }

    Timed connect_at_once(const Channels& channels) {
        channels.require_distinct();
        std::vector<std::shared_ptr<pvxs::client::Connect>> connects;
        auto of = fresh(connects);
        Countdown connected;
        auto start = Clock::now();
        for (size_t index = 0; index < channels.n; index++) {
            connects.push_back(of.connect(channels.name(index)).onConnect([&connected] { connected.one(); }).exec());
        }
        auto created_ns = (int64_t)ns_since(start);
        connected.wait(channels.n, "connecting");
        return {ns_since(start), channels.n, created_ns};
    }

    // Gets from all channels with at most `n_in_flight` at a time; each has been opened before.
    Timed gets(const Channels& channels, const char* request, size_t n_in_flight) {
        Countdown opened, done;
        Operations operations;
        for (size_t index = 0; index < channels.n; index++) {
            operations.push_back(open_get(context, channels.name(index), request, opened));
        }
        opened.wait(channels.n, "opening gets");
        std::vector<Value> values(channels.n);
        auto start = Clock::now();
        for (size_t index = 0; index < channels.n; index++) {
            if (index >= n_in_flight) done.wait(index - n_in_flight + 1, "get");
            operations[index]->reExecGet([&values, &done, index](Result&& result) {
                std::string error;
                try {
                    values[index] = result();
                } catch (std::exception& why) {
                    error = why.what();
                }
                done.one(error);
            });
        }
        done.wait(channels.n, "get");
        Timed timed{ns_since(start), channels.n};
        for (size_t index = 0; index < channels.n; index++) channels.check(index, values[index]["value"].as<double>());
        return timed;
    }

    Timed monitor_at_once(const Channels& channels) {
        Countdown opened, begun;
        Operations kept;
        for (size_t index = 0; index < channels.n; index++) {
            kept.push_back(open_get(context, channels.name(index), READING, opened));
        }
        opened.wait(channels.n, "connecting");
        std::vector<double> values(channels.n);
        std::vector<char> has_value(channels.n, 0);
        std::vector<std::shared_ptr<Subscription>> subscriptions;
        auto start = Clock::now();
        for (size_t index = 0; index < channels.n; index++) {
            auto update = [&, index](Subscription& subscription) {
                try {
                    while (auto value = subscription.pop()) {
                        if (has_value[index]) continue;
                        has_value[index] = 1;
                        values[index] = value["value"].as<double>();
                        begun.one();
                    }
                } catch (std::exception& why) {
                    begun.one(why.what());
                }
            };
            subscriptions.push_back(context.monitor(channels.name(index)).pvRequest(READING).event(update).exec());
        }
        auto created_ns = (int64_t)ns_since(start);
        begun.wait(channels.n, "the first updates");
        Timed timed{ns_since(start), channels.n, created_ns};
        // Each waits until its callback has returned.
        for (auto& subscription : subscriptions) subscription->cancel();
        for (size_t index = 0; index < channels.n; index++) channels.check(index, values[index]);
        return timed;
    }

    Timed put_at_once(const Channels& channels) {
        Countdown opened;
        Operations operations(channels.n);
        std::vector<Value> prototypes(channels.n);
        for (size_t index = 0; index < channels.n; index++) {
            operations[index] = context.put(channels.name(index))
                                    .pvRequest(COMPLETED)
                                    .autoExec(false)
                                    .fetchPresent(false)
                                    .onInit([&, index](const Value& prototype) {
                                        prototypes[index] = prototype.cloneEmpty();
                                        opened.one();
                                    })
                                    .build([](Value&& value) { return std::move(value); })
                                    .exec();
        }
        opened.wait(channels.n, "opening puts");
        auto put_all = [&](double more) {
            Countdown done;
            for (size_t index = 0; index < channels.n; index++) {
                auto argument = prototypes[index].cloneEmpty();
                argument["value"] = (double)channels.number(index) + more;
                operations[index]->reExecPut(argument, [&done](Result&& result) {
                    std::string error;
                    try {
                        result();
                    } catch (std::exception& why) {
                        error = why.what();
                    }
                    done.one(error);
                });
            }
            done.wait(channels.n, "put");
        };
        auto start = Clock::now();
        put_all(0.5);
        Timed timed{ns_since(start), channels.n};
        std::vector<double> values(channels.n);
        for (size_t index = 0; index < channels.n; index++) {
            values[index] = context.get(channels.name(index)).exec()->wait(10.0)["value"].as<double>();
        }
        put_all(0.0);
        for (size_t index = 0; index < channels.n; index++) channels.check(index, values[index] - 0.5);
        return timed;
    }

    static std::shared_ptr<Operation> open_put(Context& of, const std::string& name, const char* request,
                                               Value& prototype, Countdown& opened) {
        return of.put(name)
            .pvRequest(request)
            .autoExec(false)
            .fetchPresent(false)
            .onInit([&prototype, &opened](const Value& offered) {
                prototype = offered.cloneEmpty();
                opened.one();
            })
            .build([](Value&& value) { return std::move(value); })
            .exec();
    }

    // Checks that a record has counted by one; returns its number.
    static double counted(const Value& value, size_t n_elements, double last) {
        double number = NAN;
        if (n_elements > 0) {
            auto elements = value.as<pvxs::shared_array<const double>>();
            if (elements.size() != n_elements) {
                throw Failed("{\"failed\":{\"wrong_count\":{\"n\":" + std::to_string(elements.size()) +
                             ",\"expected\":" + std::to_string(n_elements) + "}}}");
            }
            number = elements[0];
            for (size_t index = 0; index < n_elements; index++) {
                if (elements[index] != number + (double)index) {
                    throw wrong_value(elements[index], std::to_string(number) + " + " + std::to_string(index));
                }
            }
        } else {
            number = value.as<double>();
        }
        auto expected = last < 0 ? number : next_of(last);
        if (!(number >= 0 && number <= COUNTER_LAST) || number != expected) {
            throw wrong_value(number, std::to_string(expected));
        }
        return number;
    }

    std::string process_gets(const Request& request) {
        Channels channels(request);
        auto n_elements = request.number("n_elements");
        bool puts_first = request.text("way") == "put_then_get";
        Countdown opened;
        // Operations end before the memory that their callbacks write to.
        std::vector<Value> arguments(channels.n), values(channels.n);
        Operations gets, puts;
        for (size_t index = 0; index < channels.n; index++) {
            auto name = channels.name(index);
            gets.push_back(open_get(context, name, puts_first ? READING : PROCESSED, opened));
            if (puts_first) puts.push_back(open_put(context, name + ".PROC", COMPLETED, arguments[index], opened));
        }
        opened.wait(gets.size() + puts.size(), "opening");
        for (auto& argument : arguments) {
            if (puts_first) argument["value"] = 1;
        }
        std::vector<double> last(channels.n, -1);
        auto round = [&] {
            // After a failure other callbacks may still come.
            auto done = std::make_shared<Countdown>();
            auto start = Clock::now();
            for (size_t index = 0; index < channels.n; index++) {
                if (puts_first) {
                    puts[index]->reExecPut(arguments[index], [done](Result&& result) { done->one(error_of(result)); });
                }
                gets[index]->reExecGet([&values, done, index](Result&& result) {
                    std::string error;
                    try {
                        values[index] = result();
                    } catch (std::exception& why) {
                        error = why.what();
                    }
                    done->one(error);
                });
            }
            done->wait(gets.size() + puts.size(), "processGet");
            auto ns = ns_since(start);
            for (size_t index = 0; index < channels.n; index++) {
                last[index] = counted(values[index]["value"], n_elements, last[index]);
            }
            return ns;
        };
        auto times = repeat(request, round);
        return "{\"rounds\":{\"rounds_ns\":[" + times + "],\"n\":" + std::to_string(channels.n) + "}}";
    }

    std::string event_rounds(const Request& request) {
        Channels channels(request);
        std::mutex mutex;
        std::condition_variable changed;
        std::vector<CycleTally> tallies(channels.n);
        std::vector<std::shared_ptr<Subscription>> subscriptions(channels.n);
        auto subscribe = [&](size_t index) {
            auto update = [&, index](Subscription& subscription) {
                try {
                    while (auto value = subscription.pop()) {
                        auto number = value["value"].as<double>();
                        std::lock_guard<std::mutex> guard(mutex);
                        tallies[index].add(number);
                        if (index + 1 == channels.n || tallies[index].received == 0) changed.notify_one();
                    }
                } catch (std::exception&) {
                    // A disconnection; what is missing then shows in the sums.
                }
            };
            subscriptions[index] = context.monitor(channels.name(index))
                                       .pvRequest("field(value,alarm,timeStamp)record[queueSize=100]")
                                       .event(update)
                                       .exec();
        };
        auto wait = [&](std::chrono::milliseconds timeout, std::function<bool()> is_done) {
            std::unique_lock<std::mutex> guard(mutex);
            return changed.wait_for(guard, timeout, is_done);
        };
        const auto attempt = std::chrono::milliseconds(2000);
        for (size_t first = 0; first < channels.n; first += SUBSCRIPTIONS_AT_ONCE) {
            auto end = std::min(first + SUBSCRIPTIONS_AT_ONCE, channels.n);
            auto has_begun = [&] {
                for (size_t index = first; index < end; index++) {
                    if (tallies[index].last < 0) return false;
                }
                return true;
            };
            for (size_t index = first; index < end; index++) subscribe(index);
            if (wait(attempt, has_begun)) continue;
            for (size_t index = first; index < end; index++) {
                bool is_missing;
                {
                    std::lock_guard<std::mutex> guard(mutex);
                    is_missing = tallies[index].last < 0;
                }
                if (!is_missing) continue;
                subscriptions[index]->cancel();
                subscribe(index);
            }
            if (!wait(attempt, has_begun)) throw unable("{event", "first updates are missing");
        }
        Countdown opened, replied;
        Value argument;
        auto event = open_put(context, request.text("event"), PUT, argument, opened);
        opened.wait(1, "opening the put");
        argument["value"] = 1;
        auto values = [&] {
            std::lock_guard<std::mutex> guard(mutex);
            std::vector<double> values;
            for (auto& tally : tallies) values.push_back(tally.last);
            return values;
        };
        auto begun = values();
        uint64_t n_events = 0;
        double last = begun.back();
        auto round = [&] {
            auto next = next_of(last);
            auto start = Clock::now();
            event->reExecPut(argument, [&replied](Result&& result) { replied.one(error_of(result)); });
            n_events++;
            auto has_last = [&] { return tallies.back().last == next; };
            if (!wait(std::chrono::milliseconds(10'000), has_last)) {
                throw unable("{event", "no update of the last counter");
            }
            auto ns = ns_since(start);
            last = next;
            // One put can be in progress; its reply is not measured.
            replied.wait(n_events, "put");
            return ns;
        };
        auto times = repeat(request, round);
        auto is_settled = [&] {
            const auto cycle = (uint64_t)COUNTER_LAST + 1;
            for (size_t index = 0; index < channels.n; index++) {
                if (tallies[index].last != (double)(((uint64_t)begun[index] + n_events) % cycle)) return false;
            }
            return true;
        };
        auto count = [&] {
            std::lock_guard<std::mutex> guard(mutex);
            uint64_t sum = 0;
            for (auto& tally : tallies) sum += tally.received;
            return sum;
        };
        auto received = count();
        auto quiet_since = Clock::now();
        while (!wait(std::chrono::milliseconds(10), is_settled)) {
            auto now = count();
            if (now != received) quiet_since = Clock::now();
            if (Clock::now() - quiet_since > std::chrono::seconds(1)) break;
            received = now;
        }
        // Each waits until its callback has returned.
        for (auto& subscription : subscriptions) subscription->cancel();
        CycleTally sums;
        for (auto& tally : tallies) {
            sums.received += tally.received;
            sums.missing += tally.missing;
            sums.duplicates += tally.duplicates;
            sums.out_of_order += tally.out_of_order;
            sums.wrong += tally.wrong;
        }
        return "{\"rounds\":{\"rounds_ns\":[" + times + "],\"n\":" + std::to_string(channels.n) + ",\"n_events\":" +
               std::to_string(n_events) + ",\"updates\":{\"received\":" + std::to_string(sums.received) +
               ",\"missing\":" + std::to_string(sums.missing) + ",\"duplicates\":" + std::to_string(sums.duplicates) +
               ",\"out_of_order\":" + std::to_string(sums.out_of_order) + ",\"wrong\":" + std::to_string(sums.wrong) +
               ",\"merged\":0}}}";
    }

    // This program prints a value as well.
    Timed commands(const Channels& channels) {
        uint64_t ns = 0;
        for (size_t index = 0; index < channels.n; index++) {
            auto command = "/proc/" + std::to_string(getpid()) + "/exe get " + channels.name(index);
            auto start = Clock::now();
            FILE* output = popen(command.c_str(), "r");
            double value = NAN;
            if (!output || fscanf(output, "%lf", &value) != 1) value = NAN;
            if (output && pclose(output) != 0) value = NAN;
            ns += ns_since(start);
            channels.check(index, value);
        }
        return {ns, channels.n};
    }
};

// The value that encodes a number; an array encodes it by its ends, see `lab/src/load/tally.rs`.
double encoded(const Value& value) {
    if (!value.type().isarray()) return value.as<double>();
    auto elements = value.as<pvxs::shared_array<const double>>();
    auto n = elements.size();
    return n > 0 && elements[n - 1] == elements[0] + (double)n ? elements[0] : NAN;
}

// Counts the updates of one subscription, as `lab/src/load/tally.rs`.
struct Tally {
    uint32_t pv = 0;
    bool has_last = false;
    uint64_t last = 0, last_ns = 0, received = 0, missing = 0, duplicates = 0, out_of_order = 0, wrong = 0, gap_ns = 0;
    int64_t seconds = 0;
    int32_t nanoseconds = 0;
};

class Watcher {
    bool is_checked;
    Context context = Context::fromEnv();
    // One lock: pvxs calls back on one thread for each context.
    std::mutex mutex;
    std::vector<std::unique_ptr<Tally>> tallies;
    std::map<uint64_t, uint64_t> latencies;
    // Ended before the tallies that they write to.
    std::vector<std::shared_ptr<Subscription>> subscriptions;

public:
    explicit Watcher(bool checked) : is_checked(checked) {}

    std::string answer(const Request& request) {
        if (request.verb == "watch") return watch(request.number("n_pvs"), request.number("n_subscriptions"));
        if (request.verb == "restart") return restart();
        if (request.verb == "count") return count();
        return "{\"failed\":{\"why\":\"this watcher does not support the request\"}}";
    }

private:
    bool decode(uint32_t pv, double value, uint64_t& number) const {
        if (!(value >= 0 && value < 9e15) || value != std::floor(value)) return false;
        number = (uint64_t)value;
        if (!is_checked) return true;
        uint64_t check = number % 256;
        number /= 256;
        return (((((uint64_t)pv << 32) ^ number) * 0x9e3779b97f4a7c15u) >> 56) == check;
    }

    void add(Tally& tally, const Value& value) {
        auto stamp = value["timeStamp"];
        auto stamp_ns = stamp["secondsPastEpoch"].as<int64_t>() * 1'000'000'000 + stamp["nanoseconds"].as<int32_t>();
        auto now_unix_ns = (int64_t)unix_ns();
        uint64_t latency = std::min<int64_t>(std::max<int64_t>(now_unix_ns - stamp_ns, 1), 60'000'000'000);
        uint64_t now_ns = Clock::now().time_since_epoch().count(), number = 0;
        std::lock_guard<std::mutex> guard(mutex);
        if (tally.last_ns) tally.gap_ns = std::max(tally.gap_ns, now_ns - tally.last_ns);
        tally.last_ns = now_ns;
        bool is_right = decode(tally.pv, encoded(value["value"]), number);
        if (!tally.has_last) {
            // The first update is the value before the load; it only sets where counting starts.
            tally.wrong += !is_right;
            tally.has_last = is_right;
            tally.last = number;
            return;
        }
        tally.received++;
        // Upper bounds of buckets: 128 per power of two.
        int shift = std::max(56 - __builtin_clzll(latency), 0);
        latencies[(((latency >> shift) + 1) << shift) - 1]++;
        if (!is_right) {
            tally.wrong++;
        } else if (number == tally.last) {
            tally.duplicates++;
        } else if (number < tally.last) {
            tally.out_of_order++;
        } else {
            tally.missing += number - tally.last - 1;
            tally.last = number;
        }
    }

    std::string watch(uint32_t n_pvs, uint32_t n_subscriptions) {
        for (uint32_t pv = 0; pv < n_pvs; pv++) {
            char name[32];
            std::snprintf(name, sizeof name, "load:%06u", pv);
            for (uint32_t index = 0; index < n_subscriptions; index++) {
                auto* tally = new Tally();
                tally->pv = pv;
                {
                    std::lock_guard<std::mutex> guard(mutex);
                    tallies.emplace_back(tally);
                }
                auto update = [this, tally](Subscription& subscription) {
                    try {
                        while (auto value = subscription.pop()) add(*tally, value);
                    } catch (std::exception&) {
                        // A disconnection; what is missing then shows in the account.
                    }
                };
                // By default 4 updates are queued before they are merged.
                subscriptions.push_back(context.monitor(name)
                                            .pvRequest("field(value,timeStamp)record[queueSize=100]")
                                            .event(update)
                                            .exec());
            }
        }
        auto deadline = Clock::now() + std::chrono::seconds(30);
        for (;;) {
            size_t n_begun;
            {
                std::lock_guard<std::mutex> guard(mutex);
                n_begun = std::count_if(tallies.begin(), tallies.end(), [](auto& tally) { return tally->has_last; });
            }
            if (n_begun == tallies.size()) {
                return "{\"watching\":{\"n_subscriptions\":" + std::to_string(n_begun) + "}}";
            }
            if (Clock::now() > deadline) {
                return "{\"failed\":{\"why\":\"" + std::to_string(n_begun) + " of " + std::to_string(tallies.size()) +
                       " first updates were received\"}}";
            }
            usleep(1000);
        }
    }

    std::string restart() {
        std::lock_guard<std::mutex> guard(mutex);
        latencies.clear();
        for (auto& tally : tallies) {
            Tally clean;
            clean.pv = tally->pv;
            clean.has_last = tally->has_last;
            clean.last = tally->last;
            *tally = clean;
        }
        return "{\"restarted\":{}}";
    }

    std::string count() {
        std::lock_guard<std::mutex> guard(mutex);
        Tally sums;
        for (auto& tally : tallies) {
            sums.received += tally->received;
            sums.missing += tally->missing;
            sums.duplicates += tally->duplicates;
            sums.out_of_order += tally->out_of_order;
            sums.wrong += tally->wrong;
            sums.gap_ns = std::max(sums.gap_ns, tally->gap_ns);
        }
        auto field = [](const char* name, uint64_t value) {
            return "\"" + std::string(name) + "\":" + std::to_string(value) + ",";
        };
        auto text = "{\"tallied\":{\"sums\":{" + field("received", sums.received) + field("missing", sums.missing) +
                    field("duplicates", sums.duplicates) + field("out_of_order", sums.out_of_order) +
                    field("wrong", sums.wrong) + "\"longest_gap_ms\":" + std::to_string(sums.gap_ns / 1e6) +
                    "},\"merged\":0," + field("received", sums.received) + "\"latencies\":[";
        bool is_first = true;
        for (auto& bucket : latencies) {
            text += (is_first ? "[" : ",[") + std::to_string(bucket.first) + "," + std::to_string(bucket.second) + "]";
            is_first = false;
        }
        return text + "]}}";
    }
};

template <class Answerer> void serve(Answerer& answerer) {
    std::string line;
    while (std::getline(std::cin, line)) {
        std::string answer;
        try {
            answer = answerer.answer(Request(line));
        } catch (Failed& failed) {
            answer = failed.what();
        } catch (std::exception& why) {
            answer = unable(line.substr(0, 200), why.what()).what();
        }
        std::cout << answer << std::endl;
    }
}

} // namespace

int main(int argc, char** argv) {
    std::string verb = argc > 1 ? argv[1] : "";
    if (verb == "get" && argc > 2) {
        auto context = Context::fromEnv();
        std::cout << context.get(argv[2]).exec()->wait(10.0)["value"].as<double>() << std::endl;
        return 0;
    }
    if (verb == "watch" && argc > 2) {
        Watcher watcher(argv[2] == std::string("checked"));
        std::cout << "load worker ready" << std::endl;
        serve(watcher);
    } else {
        std::cout << "{\"hello\":{\"client\":\"pvxs\",\"version\":"
                  << quoted(std::to_string(PVXS_MAJOR_VERSION) + "." + std::to_string(PVXS_MINOR_VERSION) + "." +
                            std::to_string(PVXS_MAINTENANCE_VERSION))
                  << ",\"runtime\":\"C++\"}}" << std::endl;
        Driver driver;
        serve(driver);
    }
    // Without waiting for threads.
    std::_Exit(0);
}
