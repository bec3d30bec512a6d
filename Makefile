# Forwards its targets to ./dev. Arguments: make test ARGS="-k leases"

.PHONY: demo test check bench docs

demo test check bench docs:
	@./dev $@ $(ARGS)
