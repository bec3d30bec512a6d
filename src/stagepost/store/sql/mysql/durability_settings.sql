-- Differs: every database has settings of its own; asked for in a way that leaves out those a server does not have.
show global variables
where variable_name in (
    'innodb_doublewrite', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on'
)
