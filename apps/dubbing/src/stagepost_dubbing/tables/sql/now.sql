select now_us()
