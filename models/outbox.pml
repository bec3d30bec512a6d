/* A job of a queue that a broker carries: its row is the outbox, messages are hints that may be lost, repeated or late.

   One row, one queue at the broker, a relay, two workers and a reconciler. A worker that dies gives its message back to
   the broker; a lease that ends lets the row be queued again. Broken variants are chosen by -D; see README.md.
*/

#ifndef LOSSES
#define LOSSES 1                /* messages that the broker loses */
#endif
#ifndef REPEATS
#define REPEATS 1               /* messages that it brings twice */
#endif
#ifndef DEATHS
#define DEATHS 1                /* workers that die and start anew */
#endif
#ifndef RELAY_DEATHS
#define RELAY_DEATHS 1
#endif
#ifndef PAUSES
#define PAUSES 1                /* workers that live on after their lease */
#endif
#ifndef FAILURES
#define FAILURES 1              /* attempts that fail and are tried again */
#endif
#ifndef PUT_BACKS
#define PUT_BACKS 1             /* messages that come while the queue is paused or full */
#endif

#ifndef SWALLOWS
#define SWALLOWS 0              /* 1: the workers are external programs, which may take messages and never answer, without end */
#endif

#define MOST_SENDS 3            /* so often it is sent to programs that keep silent */
#define WORKERS 2
#define ATTEMPTS 6

mtype = { QUEUED, RUNNING, COMPLETED, DEAD };

/* The database */
mtype state = QUEUED;
byte attempts;                  /* started so far: the next one is attempts + 1 */
byte owner;
bool sent;
byte changed;                   /* how often the row was put back: its updated_at */
byte sends;                     /* how often it was marked: its sent_at */
byte crashes;                   /* how often it was sent in vain */

/* The broker */
byte waiting[ATTEMPTS];         /* messages, by attempt */
byte unclaimed[ATTEMPTS];       /* with a worker that has not asked for the row yet */

byte losses = LOSSES, repeats = REPEATS, deaths = DEATHS, relay_deaths = RELAY_DEATHS;
byte pauses = PAUSES, failures = FAILURES, put_backs = PUT_BACKS;

/* What only the checker knows */
byte started[ATTEMPTS];
byte ends_accepted;
bool sent_again_needlessly;

#define next_attempt (attempts + 1)
#define some_wait (waiting[1] + waiting[2] + waiting[3] + waiting[4] > 0)
#define some_unclaimed (unclaimed[1] + unclaimed[2] + unclaimed[3] + unclaimed[4] > 0)
#define nobody_has_it (waiting[next_attempt] == 0 && unclaimed[next_attempt] == 0)

#define once (started[1] <= 1 && started[2] <= 1 && started[3] <= 1 && started[4] <= 1)
#define ended_once (ends_accepted <= 1)
#define only_queued_is_sent (!sent || state == QUEUED)

ltl an_attempt_starts_once { [] once }
ltl it_ends_once { [] ended_once }
ltl only_lost_is_sent_again { [] !sent_again_needlessly }
ltl safe { [] (once && ended_once && only_queued_is_sent && !sent_again_needlessly) }
ltl ends { <> [] (state == COMPLETED) }
ltl ends_or_dies { <> [] (state == COMPLETED || state == DEAD) }
ltl never_lost { [] !(state == QUEUED && sent && nobody_has_it) }
ltl never_given_up { [] !(state == DEAD) }
ltl never_late { [] !(waiting[1] > 0 && attempts > 1) }

inline put_back() {
    sent = false;
    changed++
}

/* Guarded: a worker may have claimed it, or claimed and put it back, before the confirm came. */
inline mark() {
    d_step {
        if
#ifdef MARK_WHAT_CHANGED
        :: state == QUEUED && attempts == a - 1 -> sent = true; sends++
#else
        :: state == QUEUED && attempts == a - 1 && changed == seen -> sent = true; sends++
#endif
        :: else
        fi
    }
}

active proctype relay() {
    byte a, seen;
    do
    :: d_step { state == QUEUED && !sent -> a = next_attempt; seen = changed };
#ifdef MARK_FIRST
       mark();
#endif
       if
       :: relay_deaths > 0 -> relay_deaths--
       :: waiting[a]++;                 /* and its confirm */
          if
          :: relay_deaths > 0 -> relay_deaths--
          :: true
#ifndef MARK_FIRST
             -> mark()
#endif
          fi
       fi;
       a = 0; seen = 0
    od
}

inline claim() {
    atomic {
        unclaimed[a]--;
        if
        :: put_backs > 0 && state == QUEUED && attempts == a - 1 -> put_backs--; put_back(); mine = 0
#ifdef CLAIM_WITHOUT_ATTEMPT
        :: state == QUEUED ->
#else
        :: state == QUEUED && attempts == a - 1 ->
#endif
           state = RUNNING; attempts++; owner = me; sent = false; mine = attempts; started[a]++
        :: else -> mine = 0
        fi
    }
}

inline settle() {
    atomic {
        if
        :: state == RUNNING && attempts == mine && owner == me ->
           if
           :: failures > 0 -> failures--; state = QUEUED; owner = 0
           :: state = COMPLETED; owner = 0; ends_accepted++
           fi
        :: else                         /* another attempt took over */
        fi;
        mine = 0
    }
}

active [WORKERS] proctype worker() {
    byte a, mine, me = _pid;
    do
    :: atomic {
           if
           :: waiting[1] > 0 -> a = 1
           :: waiting[2] > 0 -> a = 2
           :: waiting[3] > 0 -> a = 3
           :: waiting[4] > 0 -> a = 4
           fi;
           waiting[a]--;
           unclaimed[a]++
       };
       if
       :: SWALLOWS -> unclaimed[a]--
       :: d_step { deaths > 0 -> deaths--; unclaimed[a]--; waiting[a]++ }
       :: claim();
          if
          :: mine > 0 ->
             if
             :: d_step {                /* the broker brings the message again, the row waits for its lease to end */
                    deaths > 0 -> deaths--;
                    waiting[a]++;
                    if
                    :: state == RUNNING && attempts == mine && owner == me -> owner = 0
                    :: else
                    fi;
                    mine = 0
                }
             :: settle()
             fi
          :: else
          fi                            /* and acknowledge, whatever it was */
       fi;
       a = 0
    od
}

active proctype upkeep() {
    do
    :: d_step { state == RUNNING && owner == 0 -> state = QUEUED }
    :: d_step { state == RUNNING && owner != 0 && pauses > 0 -> pauses--; state = QUEUED; owner = 0 }
    od
}

#ifndef NO_RECONCILE
#ifdef IGNORE_WAITING
#define is_lost (state == QUEUED && sent)
#else
#define is_lost (state == QUEUED && sent && !some_wait && !some_unclaimed)
#endif

/* What it saw may be old when it writes: only what was sent before it looked is put back. */
active proctype reconciler() {
    byte seen;
    do
    :: d_step { is_lost -> seen = sends };
       d_step {
           if
           :: state == QUEUED && sent && sends == seen ->
              if
              :: !nobody_has_it -> sent_again_needlessly = true
              :: else
              fi;
#ifndef NO_GIVING_UP
              crashes = crashes + SWALLOWS;
#endif
              put_back();
              if
              :: crashes == MOST_SENDS -> state = DEAD; ends_accepted++
              :: else
              fi
           :: else
           fi;
           seen = 0
       }
    od
}
#endif

active proctype broker_faults() {
    do
    :: atomic {
           if
           :: losses > 0 && waiting[1] > 0 -> losses--; waiting[1]--
           :: losses > 0 && waiting[2] > 0 -> losses--; waiting[2]--
           :: losses > 0 && waiting[3] > 0 -> losses--; waiting[3]--
           :: repeats > 0 && waiting[1] > 0 -> repeats--; waiting[1]++
           :: repeats > 0 && waiting[2] > 0 -> repeats--; waiting[2]++
           :: repeats > 0 && waiting[3] > 0 -> repeats--; waiting[3]++
           fi
       }
    od
}
