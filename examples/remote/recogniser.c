/* A worker in C: takes requests from one queue, answers to another, and knows nothing but the documented JSON.

   Build:  gcc -Wall -Wextra -O2 -o recogniser recogniser.c -lrabbitmq -lcjson
   Run:    ./recogniser amqp://guest:guest@localhost/ task_exchange task.recogniser task.results

   It says what it does on standard error. SIGTERM lets it finish what it has begun. */

#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <cjson/cJSON.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { PREFETCH = 50 }; /* how many requests are here at once; 1 if each takes long */
enum { CHANNEL = 1, HEARTBEAT_SECONDS = 30, CONNECT_SECONDS = 10, DELIVERIES_ALLOWED = 10 };

static volatile sig_atomic_t stopping = 0;

static void stop(int signal_number) {
    (void)signal_number;
    stopping = 1;
}

/* ---- The work itself: replace this by your own. ---- */

/* Returns the result; or NULL, with what went wrong and whether trying again can help. */
static cJSON *recognise(const cJSON *payload, int attempt, const char **error, bool *retryable) {
    const cJSON *key = cJSON_GetObjectItemCaseSensitive(payload, "audio_key");
    if (!cJSON_IsString(key)) {
        *error = "audio_key is missing";
        *retryable = false;
        return NULL;
    }
    if (strncmp(key->valuestring, "broken/", 7) == 0) {
        *error = "this is no audio";
        *retryable = false;
        return NULL;
    }
    if (strncmp(key->valuestring, "flaky/", 6) == 0 && attempt == 1) {
        *error = "the model is busy";
        *retryable = true;
        return NULL;
    }
    cJSON *result = cJSON_CreateObject();
    char text[512];
    snprintf(text, sizeof text, "words of %.400s", key->valuestring);
    cJSON_AddStringToObject(result, "text", text);
    cJSON_AddNumberToObject(result, "letters", (double)strlen(key->valuestring));
    return result;
}

/* ---- One request: read it, do it, write the answer. ---- */

/* Returns the answer as JSON, to be freed; NULL if what came is no request. `deliveries` counts the earlier ones. */
static char *answer_to(const char *body, size_t length, int64_t deliveries) {
    char *answer = NULL;
    cJSON *request = cJSON_ParseWithLength(body, length);
    const cJSON *task_id = cJSON_GetObjectItemCaseSensitive(request, "task_id");
    const cJSON *attempt = cJSON_GetObjectItemCaseSensitive(request, "attempt");
    const cJSON *payload = cJSON_GetObjectItemCaseSensitive(request, "payload");
    if (cJSON_IsString(task_id) && cJSON_IsNumber(attempt)) {
        const char *error = NULL;
        bool retryable = true;
        cJSON *result = NULL;
        if (deliveries >= DELIVERIES_ALLOWED) { /* it was here before, and did not get to its end */
            error = "the recogniser died of it several times";
            retryable = false;
        } else {
            result = recognise(payload, attempt->valueint, &error, &retryable);
        }
        cJSON *message = cJSON_CreateObject();
        cJSON_AddStringToObject(message, "task_id", task_id->valuestring);
        cJSON_AddNumberToObject(message, "attempt", attempt->valueint); /* the same as in the request */
        cJSON_AddStringToObject(message, "status", result ? "completed" : "failed");
        if (result) {
            cJSON_AddItemToObject(message, "result", result);
        } else {
            cJSON_AddStringToObject(message, "error", error);
            cJSON_AddBoolToObject(message, "retryable", retryable);
        }
        answer = cJSON_PrintUnformatted(message);
        cJSON_Delete(message);
    }
    cJSON_Delete(request);
    return answer;
}

/* ---- The broker. ---- */

static bool went_well(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return true;
    const char *why = "the broker closed the channel or connection";
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        why = amqp_error_string2(reply.library_error);
    fprintf(stderr, "%s: %s\n", what, why);
    return false;
}

static amqp_connection_state_t connect_to(const char *url) {
    struct amqp_connection_info info;
    char *copy = strdup(url);
    amqp_default_connection_info(&info);
    amqp_connection_state_t connection = amqp_new_connection();
    struct timeval patience = {.tv_sec = CONNECT_SECONDS};
    bool is_open = false;
    if (amqp_parse_url(copy, &info) != AMQP_STATUS_OK) {
        fprintf(stderr, "cannot read the URL\n");
    } else if (amqp_socket_open_noblock(amqp_tcp_socket_new(connection), info.host, info.port, &patience) !=
               AMQP_STATUS_OK) {
        fprintf(stderr, "cannot connect to %s:%d\n", info.host, info.port);
    } else if (went_well(amqp_login(connection, info.vhost, 0, 131072, HEARTBEAT_SECONDS, AMQP_SASL_METHOD_PLAIN,
                                    info.user, info.password), "login")) {
        amqp_channel_open(connection, CHANNEL);
        is_open = went_well(amqp_get_rpc_reply(connection), "channel");
    }
    free(copy);
    if (is_open)
        return connection;
    amqp_destroy_connection(connection);
    return NULL;
}

static void disconnect(amqp_connection_state_t connection) {
    if (connection) {
        amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
        amqp_destroy_connection(connection);
    }
}

static bool publish(amqp_connection_state_t answers, const char *exchange, const char *routing_key,
                    const char *answer) {
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .content_type = amqp_cstring_bytes("application/json"),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
    };
    /* Mandatory: it comes back if there is no queue for it, instead of vanishing. */
    return amqp_basic_publish(answers, CHANNEL, amqp_cstring_bytes(exchange), amqp_cstring_bytes(routing_key), 1, 0,
                              &properties, amqp_cstring_bytes(answer)) == AMQP_STATUS_OK;
}

/* Waits until the broker has the last `count` answers on disk; `number` is the last one's, counted from 1. */
static bool confirmed(amqp_connection_state_t answers, uint64_t number, int count) {
    bool is_confirmed[PREFETCH] = {false};
    uint64_t first = number - (uint64_t)count + 1;
    for (int left = count; left > 0;) {
        amqp_method_t method;
        if (amqp_simple_wait_method(answers, CHANNEL, AMQP_BASIC_ACK_METHOD, &method) != AMQP_STATUS_OK) {
            fprintf(stderr, "an answer was refused, or the connection is gone\n");
            return false;
        }
        const amqp_basic_ack_t *ack = method.decoded;
        for (uint64_t known = ack->multiple ? first : ack->delivery_tag; known <= ack->delivery_tag; known++) {
            if (known >= first && !is_confirmed[known - first]) {
                is_confirmed[known - first] = true;
                left--;
            }
        }
    }
    return true;
}

/* Lets the library answer the broker's heartbeats where nothing else is to be read. */
static bool is_alive(amqp_connection_state_t answers) {
    amqp_frame_t frame;
    struct timeval at_once = {0};
    return amqp_simple_wait_frame_noblock(answers, &frame, &at_once) == AMQP_STATUS_TIMEOUT;
}

/* How often a quorum queue has brought this request before without its being acknowledged. */
static int64_t deliveries_before(const amqp_basic_properties_t *properties) {
    if (properties->_flags & AMQP_BASIC_HEADERS_FLAG) {
        for (int place = 0; place < properties->headers.num_entries; place++) {
            const amqp_table_entry_t *entry = &properties->headers.entries[place];
            if (entry->key.len == 16 && memcmp(entry->key.bytes, "x-delivery-count", 16) == 0)
                return entry->value.value.i64;
        }
    }
    return 0;
}

/* Serves until a connection breaks or it is time to stop. What is not acknowledged by then comes again. */
static void serve(amqp_connection_state_t requests, amqp_connection_state_t answers, const char *exchange,
                  const char *routing_key) {
    uint64_t number = 0; /* of the last answer, as the broker counts what it confirms */
    uint64_t last = 0;   /* the last request that was answered */
    int count = 0;       /* how many answers are not confirmed, and their requests not acknowledged */
    while (!stopping || count) {
        amqp_envelope_t request;
        struct timeval patience = {.tv_usec = count ? 0 : 500000};
        bool is_full = count == PREFETCH || stopping;
        amqp_rpc_reply_t reply = {0};
        if (!is_full) {
            amqp_maybe_release_buffers(requests);
            reply = amqp_consume_message(requests, &request, &patience, 0);
        }
        bool is_idle = reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION && reply.library_error == AMQP_STATUS_TIMEOUT;
        if (is_full || is_idle) { /* The order matters: work, answer, confirm, and only then acknowledge. */
            if (count && !(confirmed(answers, number, count) &&
                           amqp_basic_ack(requests, CHANNEL, last, 1) == AMQP_STATUS_OK))
                return;
            count = 0;
            if (!is_alive(answers))
                return;
            continue;
        }
        if (!went_well(reply, "consume"))
            return;
        char *answer = answer_to(request.message.body.bytes, request.message.body.len,
                                 deliveries_before(&request.message.properties));
        bool is_done;
        if (answer) {
            is_done = publish(answers, exchange, routing_key, answer);
            number++, count++, last = request.delivery_tag;
        } else { /* without requeue: it goes to the queue of dead letters */
            fprintf(stderr, "a message is no request\n");
            is_done = amqp_basic_reject(requests, CHANNEL, request.delivery_tag, 0) == AMQP_STATUS_OK;
        }
        free(answer);
        amqp_destroy_envelope(&request);
        if (!is_done)
            return;
    }
}

/* Asks for confirms of answers, and for requests to be brought: PREFETCH that are not acknowledged. */
static bool prepare(amqp_connection_state_t requests, amqp_connection_state_t answers, const char *queue) {
    amqp_confirm_select(answers, CHANNEL);
    if (!went_well(amqp_get_rpc_reply(answers), "confirms"))
        return false;
    amqp_basic_qos(requests, CHANNEL, 0, PREFETCH, 0);
    amqp_basic_consume(requests, CHANNEL, amqp_cstring_bytes(queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    return went_well(amqp_get_rpc_reply(requests), "consume");
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: %s URL EXCHANGE REQUEST_QUEUE RESULT_ROUTING_KEY\n", arguments[0]);
        return 2;
    }
    const char *url = arguments[1], *exchange = arguments[2], *queue = arguments[3], *routing_key = arguments[4];
    struct sigaction on_stop = {.sa_handler = stop};
    sigaction(SIGTERM, &on_stop, NULL);
    sigaction(SIGINT, &on_stop, NULL);
    while (!stopping) {
        /* One connection each: the library cannot tell confirms from requests that arrive in between. */
        amqp_connection_state_t answers = connect_to(url);
        amqp_connection_state_t requests = answers ? connect_to(url) : NULL;
        if (requests && prepare(requests, answers, queue)) {
            fprintf(stderr, "serving %s\n", queue);
            serve(requests, answers, exchange, routing_key);
        }
        disconnect(requests);
        disconnect(answers);
        if (!stopping)
            usleep(500000);
    }
    fprintf(stderr, "stopped\n");
    return 0;
}
