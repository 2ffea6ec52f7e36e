(union #{1} #{2} #{3}) => #{1 2 3}
(union) => #{}
(union #{1} [2]) => #{1 2}
(union #{1} 2) !! union: expects a set, got an integer
(set/union #{:a} #{:b}) => #{:a :b}
(clojure.set/union #{1} nil) => #{1}
(intersection #{1 2} #{2 3}) => #{2}
(intersection #{1}) => #{1}
(intersection #{1 true} #{true}) => #{true}
(intersection #{1} :a) !! intersection: expects a set
(set/intersection #{1} #{2}) => #{}
(difference #{1 2} #{2}) => #{1}
(difference #{1} nil) => #{1}
(difference [1 2 3] #{2}) => #{1 3}
(difference {:a 1} #{1}) !! difference: expects a set, got a map
(set/difference #{1 2} #{1} #{2}) => #{}
(subset? #{1} #{1 2}) => true
(subset? #{3} #{1 2}) => false
(subset? #{} nil) => true
(subset? 1 #{1}) !! subset?: expects a set
(superset? #{1 2} #{1}) => true
(superset? #{1} #{1 2}) => false
(superset? #{1} 1) !! expects a set
(disj #{1 2 3} 2 9) => #{1 3}
(disj #{[1]} [1]) => #{}
(disj #{1}) => #{1}
(disj {:a 1} :a) !! disj: expects a set, got a map
(clojure.set/map-invert {:a 1 :b 2}) => {1 :a 2 :b}
(set/map-invert nil) => {}
(clojure.set/map-invert 5) !! map-invert
(clojure.set/rename-keys {:a 1 :b 2} {:a :b :b :a}) => {:a 2 :b 1}
(clojure.set/rename-keys {:a 1} {:c :d}) => {:a 1}
(clojure.set/rename-keys {:a 1} 5) !! rename-keys
