-- Differs: only here a server limits the length of statements.
select @@max_allowed_packet
