# Everything is in ./dev; this file is for hands that type `make`. Arguments: make test ARGS="-k leases"

.PHONY: demo test check bench docs

demo test check bench docs:
	@./dev $@ $(ARGS)
